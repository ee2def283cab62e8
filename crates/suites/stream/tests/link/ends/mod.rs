//! Real programs of clients and servers whose packets pass the applications.

mod balancer;
mod killed;
mod network;
mod programs;
mod services;

#[cfg(feature = "dpdk")]
pub(crate) use {
    network::{Network, SERVED},
    programs::succeeds,
    services::client,
};
