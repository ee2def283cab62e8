//! The inside with Scudo, which defines the C interface; build.rs compiles it.

use inside as _;
