//! Providers: one file each.
