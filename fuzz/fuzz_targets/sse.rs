//! Any bytes, cut anywhere: the splitter loses none and invents none, the same events come out however
//! they were cut, and no codec panics on what it reads.
#![no_main]

use bytes::Bytes;
use firsttoken_wire::sse::{Decoder, Split, Splitter, events};
use firsttoken_wire::{Dialect, anthropic, openai_chat, typed};
use libfuzzer_sys::fuzz_target;

const DIALECTS: [Dialect; 6] = [
    Dialect::OpenAiChat,
    Dialect::OpenAiResponses,
    Dialect::OpenAiCompletions,
    Dialect::OpenAiOther,
    Dialect::Anthropic,
    Dialect::Typed,
];

fuzz_target!(|input: &[u8]| {
    // The first bytes choose the bound and where the stream is cut.
    let Some((choices, stream)) = input.split_at_checked(4) else { return };
    let bound = usize::from(choices[0]) * 8;
    let reads = cut(stream, &choices[1..]);
    split(stream, &reads, bound);
    decode(stream, &reads);
    parse(stream);
});

fn cut<'a>(stream: &'a [u8], choices: &[u8]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = choices.iter().map(|choice| stream.len() * usize::from(*choice) / 255).collect();
    at.extend([0, stream.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect()
}

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

fn parse(stream: &[u8]) {
    let frame = [b"data: ".as_slice(), stream, b"\n\n"].concat();
    for dialect in DIALECTS {
        let mut parser = dialect.parser();
        let mut out = Vec::new();
        let mut openai = openai_chat::Renderer::new("id", "model", 0).include_usage(true);
        let mut claude = anthropic::Renderer::new("id", "model");
        let mut ours = typed::Renderer::new();
        for event in events(stream).chain(events(&frame)) {
            let _ = openai_chat::has_no_choices(&event);
            parser.parse(&event, &mut |event| {
                openai.render(&event, &mut out);
                claude.render(&event, &mut out);
                ours.render(&event, &mut out);
            });
        }
        let _ = dialect.facts(stream);
        let _ = dialect.parse_error_body(500, stream);
    }
    let requests = [
        openai_chat::parse_request(stream),
        anthropic::parse_request(stream),
        typed::parse_request(stream),
        typed::parse_ui_request(stream).map(|ui| ui.request),
    ];
    for request in requests.into_iter().flatten() {
        let _ = openai_chat::render_request(&request, true);
        let _ = anthropic::render_request(&request);
    }
}
