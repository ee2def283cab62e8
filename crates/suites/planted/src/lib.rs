//! Known delays and known faults: what the lab must find and survive
