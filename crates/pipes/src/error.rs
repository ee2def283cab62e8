//! Errors: a code that is returned, and one line of text that the thread can read afterwards.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use machine::SysError;
use stream::host::{ConfigError, NicClosed};

/// Result codes of the functions, as in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// `TG_OK`
    Ok = 0,
    /// `TG_INVALID`
    Invalid = -1,
    /// `TG_NO_HANDLE`
    NoHandle = -2,
    /// `TG_NO_NIC`
    NoNic = -3,
    /// `TG_REFUSED`
    Refused = -4,
    /// `TG_CLOSED`
    Closed = -5,
    /// `TG_FULL`
    Full = -6,
    /// `TG_RANGE`
    Range = -7,
    /// `TG_SYSTEM`
    System = -8,
    /// `TG_INTERNAL`
    Internal = -9,
}

/// Why a function failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    code: Code,
    /// One line: what, the cause, and the fix.
    message: String,
}

impl Failure {
    #[cold]
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Converts the error of a request to a NIC, which may have stopped.
    #[cold]
    pub(crate) fn of_request(error: &SysError, is_closed: bool) -> Self {
        let code = match error.source.kind() {
            _ if is_closed => Code::Closed,
            // The NIC's refusals are texts.
            std::io::ErrorKind::Other => Code::Refused,
            _ => Code::System,
        };
        Self::new(code, error.to_string())
    }
}

impl From<NicClosed> for Failure {
    #[cold]
    fn from(closed: NicClosed) -> Self {
        Self::new(Code::Closed, closed.to_string())
    }
}

impl From<ConfigError> for Failure {
    #[cold]
    fn from(error: ConfigError) -> Self {
        let code = match error {
            ConfigError::NicClosed(_) => Code::Closed,
            ConfigError::Full(_) => Code::Full,
            ConfigError::Taken | ConfigError::Timestamp | ConfigError::NoBuffer => Code::Refused,
        };
        Self::new(code, error.to_string())
    }
}

thread_local! {
    /// Text of the thread's last error.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of a function that returns a code.
#[inline(always)]
pub(crate) fn status(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Code::Ok as c_int,
        Ok(Err(failure)) => note(failure) as c_int,
        Err(panic) => note(panicked(panic.as_ref())) as c_int,
    }
}

/// Runs the body of a function that returns a count, or a negative code.
#[inline(always)]
pub(crate) fn count(body: impl FnOnce() -> Result<usize, Failure>) -> i64 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(count)) => count as i64,
        Ok(Err(failure)) => note(failure) as i64,
        Err(panic) => note(panicked(panic.as_ref())) as i64,
    }
}

/// Records the text of a failure and returns its code.
#[cold]
fn note(failure: Failure) -> Code {
    let line: String =
        failure.message.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    // No text contains a NUL any more. During the end of a thread the text is lost, but not the code.
    let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(line).unwrap_or_default());
    failure.code
}

#[cold]
fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    Failure::new(Code::Internal, format!("an error in the library ({text}); report it"))
}

/// Returns the text of this thread's last error: valid until its next one.
#[unsafe(no_mangle)]
pub extern "C" fn tg_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"the thread is ending".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn last() -> &'static str {
        // SAFETY: the text is valid until the next error of this thread, and each test reads it before.
        unsafe { CStr::from_ptr(tg_error()) }.to_str().unwrap()
    }

    #[test]
    fn a_panic_becomes_a_code() {
        assert_eq!(status(|| panic!("planted {}", 1)), Code::Internal as c_int);
        assert_eq!(last(), "an error in the library (planted 1); report it");
        assert_eq!(count(|| std::panic::panic_any(7)), Code::Internal as i64);
        assert_eq!(last(), "an error in the library (no message); report it");
    }

    #[test]
    fn a_text_is_one_line() {
        let body = || Err(Failure::new(Code::Refused, "one\ntwo\0three"));
        assert_eq!(status(body), Code::Refused as c_int);
        assert_eq!(last(), "one\u{fffd}two\u{fffd}three");
    }
}
