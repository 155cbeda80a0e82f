//! core.
