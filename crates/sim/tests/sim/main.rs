//! The simulator seen from its sockets: are its dialects valid, its times exact, its faults what
//! their names say, and its books right?
//!
//! Everything that can runs over in-memory pipes under a paused clock; what only a real socket can
//! show (FIN, RST, what one write is) runs over loopback.

mod accounting;
mod client;
mod dialects;
mod faults;
mod timing;
