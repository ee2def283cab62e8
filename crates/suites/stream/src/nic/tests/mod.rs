//! What NIC and programs agree on, from both ends at once.

mod doorbells;
mod orders;
