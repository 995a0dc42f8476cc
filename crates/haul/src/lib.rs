//! Haul.
