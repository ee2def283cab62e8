//! `tollgate completions`

/// Writes the completions of a shell to standard output.
pub(crate) fn run(shell: clap_complete::Shell) {
    let mut command = crate::arguments::command(crate::SUITES);
    clap_complete::generate(shell, &mut command, "tollgate", &mut std::io::stdout());
}
