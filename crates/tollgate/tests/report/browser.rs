//! A headless Chromium, driven by WebDriver (W3C) and Chromium's own commands.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::TIMEOUT;

/// Property that contains the ID of an element in messages of WebDriver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Drivers that are started at most: one that loses the race for a free port to another ends.
const ATTEMPTS: usize = 5;

/// A browser with one window.
pub(crate) struct Browser {
    driver: Child,
    agent: ureq::Agent,
    session: String,
}

/// Starts a driver; returns it with its port, `None` if it ended before it had one.
fn start_driver() -> std::io::Result<(Child, Option<u16>)> {
    let mut driver = Command::new("chromedriver");
    driver.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null());
    let mut driver = driver.spawn()?;
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let port = lines.find_map(|line| {
        let line = line.ok()?;
        let (_, port) = line.split_once("started successfully on port ")?;
        port.trim_end_matches('.').parse::<u16>().ok()
    });
    if port.is_none() {
        driver.wait()?;
    }
    // The driver must not wait for a reader of its output.
    std::thread::spawn(move || lines.for_each(drop));
    Ok((driver, port))
}

impl Browser {
    /// Starts a browser; `None`, with a note, without Chromium and its driver.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let started =
            (0..ATTEMPTS).map(|_| start_driver()).find(|one| !matches!(one, Ok((_, None))));
        let (driver, port) = match started.unwrap() {
            Ok(started) => started,
            Err(why) => {
                machine::untested::note(test, &format!("chromedriver: {why}"));
                return None;
            }
        };
        let config = ureq::Agent::config_builder().http_status_as_error(false).build();
        let agent = ureq::Agent::new_with_config(config);
        let mut browser =
            Self { driver, agent, session: format!("http://127.0.0.1:{}/session", port.unwrap()) };
        let options = json!({
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"],
        });
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let session = browser.post("", &capabilities);
        browser.session += &format!("/{}", session["sessionId"].as_str().unwrap());
        browser.resize(1280, 900);
        Some(browser)
    }

    /// Sends a command and returns its value.
    fn post(&self, command: &str, body: &Value) -> Value {
        let address = format!("{}{command}", self.session);
        let mut response = self.agent.post(&address).send_json(body).unwrap();
        let value: Value = response.body_mut().with_config().limit(1 << 30).read_json().unwrap();
        assert!(value["value"]["error"].is_null(), "{command} {body}: {value}");
        value["value"].clone()
    }

    /// Sends a command of Chromium's own protocol.
    pub(crate) fn chromium(&self, command: &str, params: &Value) -> Value {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": params }))
    }

    /// Sets the size of the page; windows of phones are narrower than Chromium permits for a desktop.
    pub(crate) fn resize(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.chromium("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Sets whether the user prefers dark colours.
    pub(crate) fn prefer(&self, scheme: &str) {
        let feature = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.chromium("Emulation.setEmulatedMedia", &json!({ "features": feature }));
    }

    /// Opens a page without waiting for its scripts.
    pub(crate) fn visit(&self, page: &Path) {
        self.post("/url", &json!({ "url": format!("file://{}", page.display()) }));
    }

    /// Opens a page, with a fragment such as `#claims`, and waits until its scripts have started.
    pub(crate) fn open(&self, page: &Path, fragment: &str) {
        // Another fragment of the present page would not load it again.
        self.post("/url", &json!({ "url": "about:blank" }));
        self.post("/url", &json!({ "url": format!("file://{}{fragment}", page.display()) }));
        self.wait("return document.documentElement.dataset.ready === 'yes'");
    }

    /// Runs a function body in the page and returns its result.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.run_with(script, &[])
    }

    /// Runs a function body with arguments.
    pub(crate) fn run_with(&self, script: &str, arguments: &[Value]) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": arguments }))
    }

    /// Waits until a function body returns true.
    #[track_caller]
    pub(crate) fn wait(&self, script: &str) {
        let start = Instant::now();
        while self.run(script) != json!(true) {
            assert!(start.elapsed() < TIMEOUT, "{script}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the text of the first element that matches a selector.
    #[track_caller]
    pub(crate) fn text(&self, selector: &str) -> String {
        let text = self.run_with(
            "return document.querySelector(arguments[0])?.textContent ?? null",
            &[json!(selector)],
        );
        text.as_str().unwrap_or_else(|| panic!("no element {selector}")).to_owned()
    }

    /// Returns the number of elements that match a selector.
    pub(crate) fn count(&self, selector: &str) -> u64 {
        let script = "return document.querySelectorAll(arguments[0]).length";
        self.run_with(script, &[json!(selector)]).as_u64().unwrap()
    }

    fn element(&self, selector: &str) -> String {
        let found = self.post("/element", &json!({ "using": "css selector", "value": selector }));
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    /// Clicks an element as a user does: it must be visible.
    pub(crate) fn click(&self, selector: &str) {
        let element = self.element(selector);
        self.run_with(
            "document.querySelector(arguments[0]).scrollIntoView({ block: 'center' })",
            &[json!(selector)],
        );
        self.post(&format!("/element/{element}/click"), &json!({}));
    }

    /// Types a text, or keys of WebDriver, into an element.
    pub(crate) fn press(&self, selector: &str, keys: &str) {
        let element = self.element(selector);
        self.post(&format!("/element/{element}/value"), &json!({ "text": keys }));
    }

    /// Chooses an option of a list by its text.
    pub(crate) fn choose(&self, selector: &str, text: &str) {
        let script = "const list = document.querySelector(arguments[0]);
            const option = [...list.options].find((one) => one.text === arguments[1]);
            list.value = option.value;
            list.dispatchEvent(new Event('input', { bubbles: true }));
            list.dispatchEvent(new Event('change', { bubbles: true }));";
        self.run_with(script, &[json!(selector), json!(text)]);
    }

    /// Moves the pointer to a position in the window.
    pub(crate) fn point(&self, x: f64, y: f64) {
        let motion = |x: f64| json!({ "type": "pointerMove", "duration": 0, "x": x.round(), "y": y.round() });
        let actions =
            json!([{ "type": "pointer", "id": "mouse", "actions": [motion(x - 2.0), motion(x)] }]);
        self.post("/actions", &json!({ "actions": actions }));
    }

    /// Taps a position in the window with a finger.
    pub(crate) fn tap(&self, x: f64, y: f64) {
        self.chromium("Emulation.setTouchEmulationEnabled", &json!({ "enabled": true }));
        let fingers = json!([{ "x": x.round(), "y": y.round() }]);
        for (kind, points) in [("touchStart", fingers), ("touchEnd", json!([]))] {
            let event = json!({ "type": kind, "touchPoints": points });
            self.chromium("Input.dispatchTouchEvent", &event);
        }
    }

    /// Saves a picture of the window.
    pub(crate) fn screenshot(&self, path: &Path) {
        let data = self.chromium("Page.captureScreenshot", &json!({ "format": "png" }));
        let bytes = base64::Engine::decode(
            &base64::engine::general_purpose::STANDARD,
            data["data"].as_str().unwrap(),
        );
        std::fs::write(path, bytes.unwrap()).unwrap();
    }

    /// Returns the messages of the console since the last call.
    pub(crate) fn console(&self) -> Vec<String> {
        let entries = self.post("/se/log", &json!({ "type": "browser" }));
        entries.as_array().unwrap().iter().map(|entry| entry["message"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser with its session.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
