//! The sources of kernels and planted bugs, which travel in the program.

use super::manifest::Language;

/// A file's name and text.
pub(super) type Source = (&'static str, &'static str);

/// What every program of a language includes.
const SHARED: &[(Language, &[Source])] = &[
    (
        Language::C,
        &[
            ("kernel.h", include_str!("../../kernels/kernel.h")),
            ("bounds.h", include_str!("../../kernels/bounds.h")),
        ],
    ),
    (Language::Cpp, &[("kernel.h", include_str!("../../kernels/kernel.h"))]),
    (Language::Rust, &[("harness.rs", include_str!("../../kernels/harness.rs"))]),
];

/// Lists the programs in their three languages.
macro_rules! programs {
    ($($folder:literal $name:literal)*) => {
        &[$(
            (Language::C, $name, (concat!($name, ".c"),
                include_str!(concat!("../../", $folder, "/", $name, ".c")))),
            (Language::Cpp, $name, (concat!($name, ".cpp"),
                include_str!(concat!("../../", $folder, "/", $name, ".cpp")))),
            (Language::Rust, $name, (concat!($name, ".rs"),
                include_str!(concat!("../../", $folder, "/", $name, ".rs")))),
        )*]
    };
}

const PROGRAMS: &[(Language, &str, Source)] = programs! {
    "kernels" "arraywrite"
    "kernels" "arrayread"
    "kernels" "struct"
    "kernels" "ptrcreation"
    "kernels" "mallocs"
    "kernels" "funccalls"
    "bugs" "bugs"
};

/// The files of a program in a language: first the one to compile. None where there is no such program.
pub(super) fn of(language: Language, program: &str) -> Vec<Source> {
    let is = |(of, name, _): &&(Language, &str, Source)| *of == language && *name == program;
    let Some((_, _, own)) = PROGRAMS.iter().find(is) else { return Vec::new() };
    let shared = SHARED.iter().filter(|(of, _)| *of == language);
    std::iter::once(*own).chain(shared.flat_map(|(_, all)| all.iter().copied())).collect()
}
