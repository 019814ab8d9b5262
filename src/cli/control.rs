//! How a verb talks to the running proxy: over its admin side, like everybody else.
//!
//! Where that is, the proxy left in its state folder; `--admin` names another, through an SSH tunnel for example. The
//! token is the environment's, else the configuration's, else the one that the proxy made and keeps in the state
//! folder, which only its own user may read.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::runtime::{Builder, Runtime};

use super::plan_file::PlanFile;
use super::terminal::{complain, plain, say};
use super::{WRONG, env};
use crate::admin::address::{ADMIN_FILE, AdminAddress};
use crate::admin::token;
use crate::clock::Clock;
use crate::config::plan::{Origin, Secret};
use crate::config::{self, Glance};
use crate::facts::nesting;
use crate::kept;
use crate::units::{Bytes as ByteCount, Seconds};
use crate::upstream::{Addresses, Question, Upstream};

/// The longest that the proxy is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// More is no answer of a proxy's.
const LARGEST: ByteCount = ByteCount(64 << 20);

/// The options of every verb that asks a running proxy.
#[derive(Args)]
pub struct Control {
    /// Its admin side; by default the one that the state folder names
    #[arg(long, value_name = "URL", global = true)]
    admin: Option<String>,
    #[command(flatten)]
    file: PlanFile,
    /// Print the proxy's JSON instead of a table
    #[arg(long, global = true)]
    pub json: bool,
}

/// A running proxy.
pub struct Running {
    runtime: Runtime,
    upstream: Upstream,
    headers: HeaderMap,
    json: bool,
}

/// An error in the admin side's shape.
#[derive(Deserialize)]
struct Refusal {
    error: RefusalDetail,
}

#[derive(Deserialize)]
struct RefusalDetail {
    message: String,
}

impl Control {
    /// Finds the proxy; or the exit code, after what is wrong has been said.
    pub fn find(self) -> Result<Running, ExitCode> {
        let variable = env(token::VARIABLE).filter(|token| !token.is_empty());
        let knows_all = self.admin.is_some() && variable.is_some();
        let seen = if knows_all {
            Glance::default()
        } else {
            self.file.glance()
        };
        let state = seen.state.or_else(|| config::usual_state(&env));
        let state = state.unwrap_or_default();
        let token = token::known(variable, seen.admin_token.as_ref(), &state);
        let url = self.admin.map_or_else(|| left_in(state), Ok)?;
        let Some(origin) = config::origin(&url) else {
            return Err(wrong(format_args!(
                "{url} is not a URL like http://127.0.0.1:7071."
            )));
        };
        let Some(token) = token else {
            let name = token::VARIABLE;
            return Err(wrong(format_args!(
                "There is no admin token: set {name}, or run this as the proxy's user."
            )));
        };
        Running::at(origin, &token, self.json)
    }
}

impl Running {
    fn at(origin: Origin, token: &Secret, json: bool) -> Result<Self, ExitCode> {
        let value = |text: &str| {
            HeaderValue::from_str(text).map_err(|_| wrong("The admin token is no header's value."))
        };
        let mut bearer = value(&format!("Bearer {}", token.expose()))?;
        bearer.set_sensitive(true);
        let headers = HeaderMap::from_iter([
            (HOST, value(&origin.authority)?),
            (AUTHORIZATION, bearer),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        ]);
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(format_args!("No runtime: {error}")))?;
        let addresses = Arc::new(Addresses::of(&origin, true));
        Ok(Running {
            runtime,
            upstream: Upstream::new(origin, addresses, Clock::start()),
            headers,
            json,
        })
    }

    /// What it shows there, as it was sent.
    pub fn get(&self, path: &str) -> Result<Bytes, ExitCode> {
        self.call(&Method::GET, path, String::new())
    }

    /// Tells it to change something; what it says then.
    pub fn post(&self, path: &str, body: String) -> Result<Bytes, ExitCode> {
        self.call(&Method::POST, path, body)
    }

    /// The same, where an answer of this status tells what it is about as well as a good one.
    pub fn post_unless(
        &self,
        path: &str,
        body: String,
        also: StatusCode,
    ) -> Result<Bytes, ExitCode> {
        let (status, body) = self.ask(&Method::POST, path, body)?;
        if status == StatusCode::OK || status == also {
            return Ok(body);
        }
        Err(self.complaint(status, &body))
    }

    /// Prints an answer: as it came, or as a person reads it.
    pub fn show<T: DeserializeOwned>(
        &self,
        answer: &Bytes,
        tell: impl FnOnce(T),
    ) -> Result<(), ExitCode> {
        if self.json {
            say(String::from_utf8_lossy(answer));
        } else {
            tell(read(answer)?);
        }
        Ok(())
    }

    /// Lets time pass.
    pub fn pause(&self, span: Duration) {
        self.runtime
            .block_on(async { tokio::time::sleep(span).await });
    }

    fn call(&self, method: &Method, path: &str, body: String) -> Result<Bytes, ExitCode> {
        let (status, body) = self.ask(method, path, body)?;
        if status == StatusCode::OK {
            return Ok(body);
        }
        Err(self.complaint(status, &body))
    }

    fn ask(
        &self,
        method: &Method,
        path: &str,
        body: String,
    ) -> Result<(StatusCode, Bytes), ExitCode> {
        let question = Question {
            method: method.clone(),
            path,
            headers: &self.headers,
            body: body.into(),
            most: LARGEST,
        };
        let asked = async {
            tokio::select! {
                reply = self.upstream.ask(&question, Seconds::from(PATIENCE)) => reply,
                () = self.find_addresses() => std::future::pending().await,
            }
        };
        let reply = self
            .runtime
            .block_on(async { tokio::time::timeout(PATIENCE, asked).await });
        let at = &self.upstream.origin().authority;
        let reply = match reply {
            Ok(Ok(reply)) => reply,
            Ok(Err(loss)) => {
                return Err(failed(format_args!(
                    "No proxy answers at {at} ({loss}). Is `forebay serve` running? --admin URL names another."
                )));
            }
            Err(_) => {
                return Err(failed(format_args!(
                    "The proxy at {at} did not answer in 10 s."
                )));
            }
        };
        Ok((reply.status, reply.body.unwrap_or_default()))
    }

    /// Says what was answered instead of what was asked for.
    fn complaint(&self, status: StatusCode, body: &[u8]) -> ExitCode {
        let at = &self.upstream.origin().authority;
        let said = read::<Refusal>(body).map(|refusal| refusal.error.message);
        let said = plain(&said.unwrap_or_else(|_| "without a reason".to_owned()));
        let told = format!("The proxy at {at} answers {}: {said}.", status.as_u16());
        match status {
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => wrong(told),
            _ => failed(told),
        }
    }

    /// Looks the host's name up for as long as it is waited for.
    async fn find_addresses(&self) {
        self.upstream.addresses().follow(&[]).await;
        std::future::pending::<()>().await;
    }
}

/// An answer as the verb knows it.
pub fn read<T: DeserializeOwned>(answer: &[u8]) -> Result<T, ExitCode> {
    let strange = || failed("The proxy's answer is not what this version understands.");
    if nesting::is_too_deep(answer) {
        return Err(strange());
    }
    sonic_rs::from_slice(answer).map_err(|_| strange())
}

/// Where the proxy of this state folder says that it is.
fn left_in(state: PathBuf) -> Result<String, ExitCode> {
    match kept::read::<AdminAddress>(&state, ADMIN_FILE) {
        Ok(Some(address)) => Ok(address.url),
        Ok(None) => Err(failed(format_args!(
            "No proxy has run with the state folder {}. Name one with --admin URL, or its configuration with --config FILE.",
            state.display()
        ))),
        Err(error) => Err(failed(format_args!(
            "{} can't be read: {error}",
            state.join(ADMIN_FILE).display()
        ))),
    }
}

/// Says that the arguments are wrong.
pub fn wrong(complaint: impl std::fmt::Display) -> ExitCode {
    complain(complaint);
    ExitCode::from(WRONG)
}

/// Says that it did not work.
pub fn failed(complaint: impl std::fmt::Display) -> ExitCode {
    complain(complaint);
    ExitCode::FAILURE
}
