//! Monitors: one file each.
