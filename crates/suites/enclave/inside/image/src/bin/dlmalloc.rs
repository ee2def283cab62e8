//! An image with dlmalloc.
#![no_std]
#![no_main]

inside::link!(inside::linked::Dlmalloc);
