//! Changes inputs at random, so that most are still nearly right. The same seed makes the same
//! input.

mod json;
mod text;
mod wire;

use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};

/// The form of inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Lines of text.
    Text,
    /// Lines that end with JSON.
    Answers,
    /// A line, and then a message of protocol buffers.
    Wire,
}

/// No input is longer.
const LONGEST: usize = 256 << 10;

/// Returns the input of this seed: one of these, changed a few times.
pub fn mutated(form: Form, corpus: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut input = corpus.choose(&mut random).cloned().unwrap_or_default();
    let other = corpus.choose(&mut random).map(Vec::as_slice).unwrap_or_default();
    let mut changes = 1;
    while changes < 16 && random.random_bool(0.6) {
        changes += 1;
    }
    for _ in 0..changes {
        input = changed(form, &input, other, &mut random);
        input.truncate(LONGEST);
    }
    input
}

fn changed(form: Form, input: &[u8], other: &[u8], random: &mut StdRng) -> Vec<u8> {
    // Whatever the form: now and then a change of bytes, which breaks it.
    if random.random_bool(0.1) {
        return text::bytes(input, random);
    }
    match form {
        Form::Text if random.random_bool(0.5) => text::lines(input, other, random),
        Form::Text => text::words(input, random),
        Form::Answers if random.random_bool(0.25) => text::lines(input, other, random),
        Form::Answers => one_line(input, random, json::line),
        Form::Wire => {
            let end = input.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let (kind, message) = input.split_at(end);
            [kind, &wire::message(message, random)].concat()
        }
    }
}

/// Changes one line that is not the first one, most of the time.
fn one_line(
    input: &[u8],
    random: &mut StdRng,
    change: impl FnOnce(&[u8], &mut StdRng) -> Vec<u8>,
) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = input.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let at = random.random_range(0..lines.len());
    if let Some(line) = lines.get_mut(at) {
        *line = change(line, random);
    }
    lines.join(&b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_one_input_and_inputs_differ() {
        let corpus = [b"a list 200 {\"servers\": [1, 2]}\nb list 200 {}\n".to_vec()];
        for form in [Form::Text, Form::Answers, Form::Wire] {
            let made: Vec<_> = (0..200).map(|seed| mutated(form, &corpus, seed)).collect();
            let again: Vec<_> = (0..200).map(|seed| mutated(form, &corpus, seed)).collect();
            assert_eq!(made, again, "{form:?}");
            let different = made.iter().collect::<std::collections::BTreeSet<_>>().len();
            assert!(different > 60, "{form:?}: {different} of 200 differ");
        }
    }

    #[test]
    fn nothing_to_change_is_no_problem() {
        for form in [Form::Text, Form::Answers, Form::Wire] {
            for seed in 0..500 {
                mutated(form, &[], seed);
                mutated(form, &[Vec::new(), b"\n".to_vec()], seed);
            }
        }
    }
}
