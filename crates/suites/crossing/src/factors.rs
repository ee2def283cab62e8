//! What the crossing experiments vary.

use lab::factor::{Factor, Levels};

/// By which route the two ways are stamped.
pub const ROUTES: &[&str] =
    &["guest", "bare-metal", "patched", "patched-vm", "guest-emulated", "patched-emulated"];
/// How the kernel is entered and left, one way each.
pub const KINDS: &[&str] = &[
    "page-fault",
    "software-interrupt",
    "breakpoint",
    "invalid-opcode",
    "syscall-sysret",
    "syscall-iretq",
    "same-ring",
    "none",
];

/// The factors of the one-way experiments.
pub const FACTORS: &[Factor] = &[
    Factor {
        name: "route",
        about: "guest (ours, under KVM), bare-metal (the same guest, imported), patched (this \
                kernel), patched-vm (a patched kernel under KVM); emulated: for counts alone",
        levels: Levels::Names(ROUTES),
    },
    Factor {
        name: "kind",
        about: "how the kernel is entered and left; same-ring crosses no ring, none is stamps alone",
        levels: Levels::Names(KINDS),
    },
    Factor {
        name: "isolation",
        about: "whether CR3 is switched on the way, as page-table isolation does",
        levels: Levels::Names(&["off", "on"]),
    },
    Factor { name: "crossings", about: "crossings a sample", levels: Levels::Count },
];
