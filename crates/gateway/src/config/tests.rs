//! Tests of the whole configuration.
