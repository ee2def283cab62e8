//! An image with buddy.
#![no_std]
#![no_main]

inside::link!(inside::linked::Buddy);
