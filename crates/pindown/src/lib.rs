//! pindown.
