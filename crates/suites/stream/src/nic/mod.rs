//! The software NIC: a thread that behaves, as a program sees it, as the hardware does.
