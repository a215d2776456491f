//! Arrivals are what they are called.
