//! An image with jemalloc, which defines the C interface: build.rs links it to this binary.
#![no_std]
#![no_main]

use inside as _;
