//! What workloads promise.

// Exact lengths, unlike texts.
mod prompts;
// Shares, classes, bursts, order.
mod promises;
// What files may say, and what is refused.
mod files;
// Data files, sound and broken.
mod readers;

use super::*;

/// A workload out of text.
fn parsed(text: &str) -> Workload {
    file::parse(text, "test.toml", Path::new(".")).expect("a sound workload")
}

/// One class, with these lines.
fn of_class(lines: &str) -> Workload {
    parsed(&format!(
        "version = 1\nname = \"test\"\n[[class]]\nname = \"default\"\n{lines}"
    ))
}

/// A tokenizer for which each word is a token, and so is everything that the template writes.
fn fake_vocabulary() -> Vocabulary {
    let counts: Vec<u64> = Vocabulary::probes()
        .iter()
        .map(|text| 1 + fake_count(text))
        .collect();
    let vocabulary = Vocabulary::from_counts(&counts, Source::Server).expect("words");
    let chats = vocabulary.chat_probes().map(|chat| fake_chat_count(&chat));
    vocabulary.with_chat_counts(chats).expect("a template")
}

fn fake_count(text: &str) -> u64 {
    text.split(' ').count() as u64
}

/// BOS, three tokens around each message, and two that open the answer.
fn fake_chat_count(chat: &[Message]) -> u64 {
    let messages: u64 = chat
        .iter()
        .map(|message| 3 + fake_count(&message.text))
        .sum();
    1 + messages + 2
}

/// A vocabulary without a template: prompt tokens are words.
fn bare_vocabulary() -> Vocabulary {
    fake_vocabulary().with_overhead(Overhead {
        user: 0,
        system_and_user: 0,
        next_turn: 0,
    })
}

/// The chat that the first turn of a conversation sends.
fn first_chat(conversation: &Conversation) -> Vec<Message> {
    let system = conversation.system.iter().map(|text| Message {
        role: Role::System,
        text: Arc::clone(text),
    });
    let question = Message {
        role: Role::User,
        text: conversation.turns[0].text.as_str().into(),
    };
    system.chain([question]).collect()
}

fn ask(workload: &Workload, number: u64, vocabulary: &Vocabulary) -> Conversation {
    workload
        .conversation(number, 1, vocabulary)
        .expect("there is one")
}
