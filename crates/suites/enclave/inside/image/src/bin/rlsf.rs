//! An image with rlsf.
#![no_std]
#![no_main]

inside::link!(inside::linked::Rlsf);
