//! The shapes of load that a scheduler is judged by, on modelled kernels: exact, and in microseconds.
//!
//! Times are the model's (two cores, a model of 100 million parameters, as measured); what is held
//! here is counted in steps, rows and modelled time, so nothing depends on the machine that runs it.

#![cfg(test)]

mod figures;
mod overload;
mod rig;
mod shapes;
