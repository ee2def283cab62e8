//! An image with talc.
#![no_std]
#![no_main]

inside::link!(inside::linked::Talc);
