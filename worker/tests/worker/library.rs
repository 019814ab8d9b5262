//! Finding, and refusing, ONNX Runtime's library. Every refusal exits 2 within two seconds and says path and version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::support::models::put_plus;
use crate::support::{Worker, command, library};

/// Serves with this library and expects to be refused; gives what was said.
fn refused(library: &Path) -> String {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let models = models.path().to_str().unwrap();
    let serve = ["serve", "--models", models, "--http", "127.0.0.1:0"];
    let named = ["--onnxruntime", library.to_str().unwrap()];
    let (output, took) = timed(command(&[&serve[..], &named].concat()));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(took < Duration::from_secs(2), "took {took:?}");
    assert!(
        said.contains(library.to_str().unwrap()),
        "no path in: {said}"
    );
    assert!(
        said.contains("1.23 or later"),
        "no wanted version in: {said}"
    );
    said
}

#[expect(clippy::disallowed_methods, reason = "the promise is about time")]
fn timed(mut command: Command) -> (Output, Duration) {
    let start = Instant::now();
    let output = command.output().unwrap();
    (output, start.elapsed())
}

/// A shared library made of this C text.
fn compiled(folder: &Path, text: &str) -> PathBuf {
    let (source, library) = (folder.join("fake.c"), folder.join("libfake.so"));
    fs::write(&source, text).unwrap();
    let built = Command::new("cc")
        .arg("-shared")
        .arg("-fPIC")
        .arg("-o")
        .arg(&library)
        .arg(&source)
        .status();
    assert!(built.unwrap().success());
    library
}

#[test]
fn a_missing_library_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let said = refused(&folder.path().join("libonnxruntime.so"));
    assert!(said.contains("No such file"), "{said}");
}

#[test]
fn a_file_that_is_no_library_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("libonnxruntime.so");
    fs::write(
        &text,
        "a text that is longer than the header of a shared library, by some way",
    )
    .unwrap();
    assert!(refused(&text).contains("not a 64-bit"));
    fs::write(&text, "").unwrap();
    assert!(refused(&text).contains("cut short"));
}

#[test]
fn a_library_cut_short_is_refused_not_a_crash() {
    let whole = fs::read(library()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let half = folder.path().join("libonnxruntime.so");
    for length in [whole.len() / 2, whole.len() * 9 / 10, 1000] {
        fs::write(&half, &whole[..length]).unwrap();
        let said = refused(&half);
        assert!(said.contains("cut short"), "{length}: {said}");
    }
}

#[test]
fn some_other_library_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let other = compiled(folder.path(), "int answer(void) { return 42; }");
    assert!(refused(&other).contains("OrtGetApiBase"));
}

#[test]
fn an_old_library_is_named_with_its_version() {
    let folder = tempfile::tempdir().unwrap();
    let old = compiled(
        folder.path(),
        "static const void *api(unsigned version) { return 0; }
         static const char *text(void) { return \"1.22.1\"; }
         static const struct { const void *(*a)(unsigned); const char *(*b)(void); } base = { api, text };
         const void *OrtGetApiBase(void) { return &base; }",
    );
    assert!(refused(&old).contains("is version 1.22.1"));
}

#[test]
fn without_any_library_every_place_tried_is_listed() {
    let empty = tempfile::tempdir().unwrap();
    // No models either, so that it ends even where the system has a library.
    let mut serve = command(&["serve", "--models", "/nowhere", "--http", "127.0.0.1:0"]);
    let output = serve.current_dir(empty.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    for words in ["libonnxruntime.so.1", "1.23 or later", "./run deps"] {
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn the_library_is_found_by_variable_beside_the_binary_and_in_target() {
    let models = tempfile::tempdir().unwrap();
    put_plus(models.path());
    let models = models.path().to_str().unwrap();
    let serve = ["serve", "--models", models, "--http", "127.0.0.1:0"];
    let home = tempfile::tempdir().unwrap();
    let link = |folder: &Path| {
        fs::create_dir_all(folder).unwrap();
        std::os::unix::fs::symlink(library(), folder.join("libonnxruntime.so.1.31.1")).unwrap();
    };

    let mut by_variable = command(&serve);
    by_variable
        .current_dir(home.path())
        .env("FOREBAY_ONNXRUNTIME", library());
    Worker::spawn(&mut by_variable).wait_for_line("ready");

    let beside = home.path().join("bin");
    link(&beside);
    let binary = beside.join("forebay-worker");
    fs::copy(env!("CARGO_BIN_EXE_forebay-worker"), &binary).unwrap();
    let mut copied = Command::new(binary);
    copied
        .args(serve)
        .current_dir(&beside)
        .env_remove("FOREBAY_ONNXRUNTIME");
    Worker::spawn(&mut copied).wait_for_line("ready");

    link(&home.path().join("target/onnxruntime"));
    Worker::spawn(command(&serve).current_dir(home.path())).wait_for_line("ready");
}
