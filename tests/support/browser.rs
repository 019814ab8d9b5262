//! Chromium without a window, driven by its DevTools protocol (<https://chromedevtools.github.io/devtools-protocol/>)
//! over two pipes: no port, no driver, no library.
//!
//! It reads its orders from descriptor 3 and answers on 4, JSON between zero bytes; a shell puts our pipes there. What
//! the page complains of, an error in its console or a breach of its Content-Security-Policy, is kept for the test to ask.
//! With `FOREBAY_TEST_PICTURES=DIR` pictures of what is seen are left there, to be looked at.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::wait_until;

/// Where Debian and others put it.
const PLACES: [&str; 3] = [
    "/usr/bin/chromium",
    "/usr/bin/google-chrome",
    "/usr/bin/chromium-browser",
];
/// A browser on a slow, loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Every test starts it as root in a container, where its sandbox does not work.
const FLAGS: [&str; 7] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-pipe",
];
/// Gives it the descriptors that it wants.
const PIPES: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;

/// A browser with one page.
pub struct Browser {
    child: Child,
    orders: ChildStdin,
    told: Receiver<Value>,
    session: Option<String>,
    number: u64,
    events: Vec<Value>,
    pictures: Option<PathBuf>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts one; `None`, with a word of it, where none is installed.
    #[track_caller]
    #[expect(clippy::print_stdout, reason = "a skipped test says so")]
    pub fn start() -> Option<Self> {
        let Some(binary) = PLACES.iter().find(|place| Path::new(place).exists()) else {
            println!("skipped: no Chromium is installed here (Debian's package `chromium`)");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", PIPES, binary])
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, told) = channel();
        let answers = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for message in answers.split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else {
                    return;
                };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser {
            orders: child.stdin.take().unwrap(),
            child,
            told,
            session: None,
            number: 0,
            events: Vec::new(),
            pictures: pictures(),
            _profile: profile,
        };
        browser.attach();
        Some(browser)
    }

    /// Opens the one page, and listens to all that it complains of.
    fn attach(&mut self) {
        let target = self.order("Target.createTarget", json!({"url": "about:blank"}));
        let target = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.order("Target.attachToTarget", target);
        self.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Audits"] {
            self.order(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Gives an order and waits for what comes of it.
    #[track_caller]
    fn order(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut order = json!({"id": self.number, "method": method, "params": params});
        if let Some(session) = &self.session {
            order["sessionId"] = session.as_str().into();
        }
        self.orders.write_all(order.to_string().as_bytes()).unwrap();
        self.orders.write_all(&[0]).unwrap();
        loop {
            let told = self
                .told
                .recv_timeout(PATIENCE)
                .expect("the browser answers");
            if told["id"] == self.number {
                assert!(told["error"].is_null(), "{method}: {}", told["error"]);
                return told["result"].clone();
            }
            self.events.push(told);
        }
    }

    /// Goes to an address.
    #[track_caller]
    pub fn open(&mut self, url: &str) {
        let gone = self.order("Page.navigate", json!({"url": url}));
        assert!(gone["errorText"].is_null(), "{gone}");
        self.expect("the page is there", "document.readyState === 'complete'");
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub fn ask(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true});
        let told = self.order("Runtime.evaluate", params);
        assert!(told["exceptionDetails"].is_null(), "{expression}: {told}");
        told["result"]["value"].clone()
    }

    /// All text that is seen.
    #[track_caller]
    pub fn text(&mut self) -> String {
        let text = self.ask("document.body.innerText");
        text.as_str().unwrap().to_owned()
    }

    /// Waits until an expression is true in the page.
    #[track_caller]
    pub fn expect(&mut self, what: &str, expression: &str) {
        let holds = wait_until(PATIENCE, || self.ask(expression) == true);
        assert!(holds, "in vain until {what}; seen is:\n{}", self.text());
    }

    /// Waits until a text is seen.
    #[track_caller]
    pub fn expect_text(&mut self, text: &str) {
        let seen = format!("document.body.innerText.includes({})", json!(text));
        self.expect(&format!("{text:?} is seen"), &seen);
    }

    /// Another size of the window, in CSS pixels.
    pub fn resize(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.order("Emulation.setDeviceMetricsOverride", size);
    }

    /// Its user prefers `dark` or `light`.
    pub fn prefer(&mut self, scheme: &str) {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        let media = json!({"features": [feature]});
        self.order("Emulation.setEmulatedMedia", media);
    }

    /// Presses a key, by its name, and lets it go.
    pub fn press(&mut self, key: &str) {
        let text = if key == "Enter" { "\r" } else { "" };
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            _ => 0,
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event = json!({"type": kind, "key": key, "code": key, "text": text, "windowsVirtualKeyCode": code});
            self.order("Input.dispatchKeyEvent", event);
        }
    }

    /// Types a text where the focus is.
    pub fn enter(&mut self, text: &str) {
        self.order("Input.insertText", json!({"text": text}));
    }

    /// What the page has complained of so far.
    #[track_caller]
    pub fn complaints(&mut self) -> Vec<String> {
        // What is told before the answer has come by then.
        self.ask("0");
        let complains = |event: &Value| {
            let params = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Runtime.exceptionThrown" | "Audits.issueAdded" => true,
                "Runtime.consoleAPICalled" => params["type"] == "error",
                "Log.entryAdded" => params["entry"]["level"] == "error",
                _ => false,
            }
        };
        let events = self.events.iter().filter(|event| complains(event));
        events.map(Value::to_string).collect()
    }

    /// Leaves a picture of the whole page where somebody wants to look at it.
    pub fn picture(&mut self, name: &str) {
        let Some(folder) = self.pictures.clone() else {
            return;
        };
        let wish = json!({"format": "png", "captureBeyondViewport": true});
        let shot = self.order("Page.captureScreenshot", wish);
        let png = BASE64_STANDARD.decode(shot["data"].as_str().unwrap());
        std::fs::write(folder.join(format!("{name}.png")), png.unwrap()).unwrap();
    }
}

/// Where pictures are wanted, if they are.
#[expect(
    clippy::disallowed_methods,
    reason = "whoever runs the tests says where pictures go"
)]
fn pictures() -> Option<PathBuf> {
    std::env::var_os("FOREBAY_TEST_PICTURES").map(PathBuf::from)
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
