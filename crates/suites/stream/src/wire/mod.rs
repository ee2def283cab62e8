//! What is on the wire: packets, their flows, and files of them.

pub mod flow;
