//! An image with dlmalloc under a lock that waits.
#![no_std]
#![no_main]

inside::link!(inside::linked::dlmalloc::DlmallocWait);
