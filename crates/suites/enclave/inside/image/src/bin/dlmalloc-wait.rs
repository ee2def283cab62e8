//! An image with dlmalloc under a lock that sleeps.
#![no_std]
#![no_main]

inside::link!(inside::linked::DlmallocWait);
