//! Whether this boot isolates the page tables of kernel and user.

use std::fs;

use lab::sample::Failure;

/// `on` or `off`, as this kernel runs.
///
/// # Errors
/// Where /proc/cpuinfo cannot be read.
pub(super) fn of_this_boot() -> Result<&'static str, Failure> {
    let path = "/proc/cpuinfo";
    let text = fs::read_to_string(path).map_err(|e| Failure::failed(format!("{path}: {e}")))?;
    Ok(if has_flag(&text, "pti") { "on" } else { "off" })
}

/// Whether this boot has the level that is asked for.
///
/// # Errors
/// Where it has the other.
pub(super) fn check(asked: &str) -> Result<(), Failure> {
    let here = of_this_boot()?;
    if asked == here {
        return Ok(());
    }
    Err(Failure::unavailable(
        format!("this boot has page-table isolation {here}"),
        format!("boot with pti={asked} and run again: the run goes on"),
    ))
}

/// The kernel lists `pti` among the flags where it uses it, also where it was forced.
fn has_flag(cpuinfo: &str, flag: &str) -> bool {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")).unwrap_or("");
    line.split_whitespace().any(|word| word == flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_is_a_word_of_its_own() {
        let cpuinfo = |flags| format!("processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: pti\n");
        assert!(has_flag(&cpuinfo("fpu pti sse"), "pti"));
        assert!(!has_flag(&cpuinfo("fpu ptix sse"), "pti"));
    }

    #[test]
    fn this_boot_has_one_of_the_two() {
        let here = of_this_boot().unwrap();
        let other = if here == "on" { "off" } else { "on" };
        assert_eq!(check(here), Ok(()));
        assert!(check(other).unwrap_err().to_string().contains(&format!("pti={other}")));
    }
}
