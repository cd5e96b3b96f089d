//! Any bytes, cut anywhere: the splitter loses none and invents none, and the same events come out however
//! they were cut.
#![no_main]

use bytes::Bytes;
use firsttoken_fuzz::cut;
use firsttoken_wire::sse::{Decoder, Split, Splitter, events};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // The first bytes choose the bound and where the stream is cut.
    let Some((choices, stream)) = input.split_at_checked(4) else { return };
    let bound = usize::from(choices[0]) * 8;
    let reads = cut(stream, &choices[1..]);
    split(stream, &reads, bound);
    decode(stream, &reads);
});

fn split(stream: &[u8], reads: &[&[u8]], bound: usize) {
    let mut splitter = Splitter::new(bound);
    let mut out = Vec::new();
    for read in reads {
        match splitter.push(Bytes::copy_from_slice(read)) {
            Split::Whole(block) => {
                let tiled: usize = events(&block).map(|event| event.raw.len()).sum();
                assert_eq!(tiled, block.len());
                out.extend_from_slice(&block);
            }
            Split::Partial => assert!(splitter.tail_len() <= bound),
            Split::Overlong(raw) => out.extend_from_slice(&raw),
        }
    }
    out.extend_from_slice(&splitter.take_tail());
    assert_eq!(out, stream);
}

fn decode(stream: &[u8], reads: &[&[u8]]) {
    // A byte order mark counts at the start only, and a block may start anywhere.
    if stream.windows(3).any(|bytes| bytes == b"\xEF\xBB\xBF") {
        return;
    }
    let (mut whole, mut pieces) = (Decoder::new(usize::MAX), Decoder::new(usize::MAX));
    whole.push(stream);
    reads.iter().for_each(|read| pieces.push(read));
    loop {
        let event = whole.poll();
        assert_eq!(event, pieces.poll());
        if event.is_none() {
            return;
        }
    }
}
