//! From a request to what the engine is asked: every parameter checked against the model,
//! the template rendered, the text encoded, defaults filled in.
//!
//! What is left open comes from the model file's own defaults, then from OpenAI's. What
//! does not fit is refused with both numbers, in the words clients parse, and never
//! clamped: a shorter answer than asked for would look like the model's own choice.

use std::time::Instant;

use api::chat::{ChatRequest, Message, Turn};
use api::completion::{Bos, CompletionRequest, Prompt};
use api::params::{AnswerLimit, ControlNames, EndTokens, Ending, Generation, TopK};
use api::report::Told;
use serde_json::{Map, Value};
use text::{
    ChatTemplate, Conversation, PromptEnding, Rendered, SpecialText, TemplateError, TokenId,
};

use crate::class::Class;
use crate::demand::Demand;
use crate::errors::Refusal;
use crate::limits::Limits;
use crate::parse::OutputParser;
use crate::state::Serving;
use crate::talk::Talk;

/// A conversation with everything decided about its answer.
pub(crate) struct Admitted {
    pub request: engine::Request,
    /// Reads the answer.
    pub parser: OutputParser,
    /// What it must look like.
    pub demand: Option<Demand>,
}

/// Builds the engine's requests for one model.
pub(crate) struct Admission<'a> {
    pub serving: &'a Serving,
    pub limits: &'a Limits,
    pub arrived: Instant,
    /// Whose bounds hold too.
    pub class: Option<&'a Class>,
}

impl Admission<'_> {
    /// Longest sequence, prompt and answer together: what the model and the class allow.
    pub fn sequence_tokens_max(&self) -> usize {
        let of_class = self.class.and_then(|class| class.context_tokens_max);
        let of_class = of_class.map_or(usize::MAX, |bound| bound as usize);
        self.serving.sequence_tokens_max().min(of_class)
    }

    /// The same in the words that clients parse.
    pub fn context_words(&self) -> String {
        let num_tokens_max = self.sequence_tokens_max();
        match self.class {
            Some(class) if num_tokens_max < self.serving.sequence_tokens_max() => {
                let name = &class.name;
                format!(
                    "The maximum context length of the class {name} is {num_tokens_max} tokens."
                )
            }
            _ => format!("This model's maximum context length is {num_tokens_max} tokens."),
        }
    }

    /// A conversation is one sequence. What is wrong with it is named as the request names it.
    pub fn chat(&self, request: &ChatRequest) -> Result<Admitted, Refusal> {
        let own = |param: &str| request.names.own(param);
        let admitted = self.admit_chat(request);
        let mut admitted = admitted.map_err(|refusal| refusal.renamed(own))?;
        admitted.demand = admitted.demand.map(|demand| demand.renamed(own));
        Ok(admitted)
    }

    fn admit_chat(&self, request: &ChatRequest) -> Result<Admitted, Refusal> {
        let num_answers = request.generation.answers.num_made;
        self.expect_places("n", num_answers)?;
        let rendered = self.render_chat(request)?;
        let tokens = self.serving.tokenizer.encode_chat(&rendered);
        let mut sequence = self.request("messages", tokens, &request.generation)?;
        self.expect_scores_fit(std::slice::from_ref(&sequence), &request.generation)?;
        let talk = Talk::new(self.serving, self.template()?, request);
        if talk.needs_control_text() {
            sequence.control_text = engine::ControlText::Shown;
        }
        Ok(Admitted {
            request: sequence,
            parser: talk.parser(&rendered),
            demand: talk.demand(&rendered)?,
        })
    }

    /// The text of a conversation, with the tools it offers.
    pub fn render_chat(&self, request: &ChatRequest) -> Result<Rendered, Refusal> {
        let (tools, messages) = Talk::shown(self.template()?, request);
        self.render_with(&messages, &tools, request.turn, &request.template_variables)
    }

    fn template(&self) -> Result<&ChatTemplate, Refusal> {
        self.expect_text("messages")?;
        self.serving.template.as_ref().ok_or_else(|| {
            let reason = "needs a chat template, and this model has none; use /v1/completions";
            for_model("messages", reason)
        })
    }

    /// Each prompt is a sequence of its own.
    pub fn completion(&self, request: &CompletionRequest) -> Result<Vec<engine::Request>, Refusal> {
        let num_prompts = request.prompts.len();
        let answers = request.generation.answers;
        self.expect_places("prompt", num_prompts)?;
        let param = if answers.num_made > answers.num_kept {
            "best_of"
        } else {
            "n"
        };
        self.expect_places(param, num_prompts * answers.num_made)?;
        let admit = |prompt| {
            let tokens = self.encode_prompt(prompt, request.bos)?;
            self.request("prompt", tokens, &request.generation)
        };
        let sequences = request.prompts.iter().map(admit);
        let sequences = sequences.collect::<Result<Vec<_>, _>>()?;
        self.expect_prompt_tokens_fit(&sequences)?;
        self.expect_scores_fit(&sequences, &request.generation)?;
        Ok(sequences)
    }

    /// All sequences of a request are taken at once or none is, so more than an idle server has
    /// places for would hear "try again" for ever.
    fn expect_places(&self, param: &str, num_sequences: usize) -> Result<(), Refusal> {
        let limits = &self.serving.facts.engine_limits;
        let num_places = limits
            .num_sequences_max
            .saturating_add(limits.num_waiting_max);
        if num_sequences <= num_places {
            return Ok(());
        }
        let reason = format!(
            "asks for {num_sequences} sequences, but this server has places for {num_places} ({} running and {} queued)",
            limits.num_sequences_max, limits.num_waiting_max,
        );
        Err(for_model(param, reason))
    }

    /// The same for their tokens. A single prompt may be longer than the queue's bound: it is
    /// taken when no other waits.
    fn expect_prompt_tokens_fit(&self, sequences: &[engine::Request]) -> Result<(), Refusal> {
        let num_tokens_max = self.serving.facts.engine_limits.num_waiting_tokens_max;
        let num_tokens: usize = sequences.iter().map(|each| each.prompt.len()).sum();
        if sequences.len() < 2 || num_tokens <= num_tokens_max {
            return Ok(());
        }
        let reason = format!(
            "has {num_tokens} tokens in {} prompts, but this server's queue holds {num_tokens_max}",
            sequences.len(),
        );
        Err(for_model("prompt", reason))
    }

    /// A small request must not ask for an answer of a gigabyte.
    fn expect_scores_fit(
        &self,
        sequences: &[engine::Request],
        generation: &Generation,
    ) -> Result<(), Refusal> {
        let tells = |sequence: &engine::Request| {
            let num_top = sequence.logprobs.prompt?;
            Some(sequence.prompt.len().saturating_mul(num_top as usize + 1))
        };
        let num_told: usize = sequences.iter().filter_map(tells).sum();
        let num_told = num_told.saturating_mul(generation.answers.num_kept);
        let num_told_max = self.limits.num_prompt_logprobs_max;
        if num_told <= num_told_max {
            return Ok(());
        }
        let param = match generation.report.prompt_logprobs {
            Some(_) => "prompt_logprobs",
            None => "logprobs",
        };
        let reason = format!(
            "asks for {num_told} log-probabilities of prompt tokens in all choices, at most {num_told_max} are told"
        );
        Err(for_model(param, reason))
    }

    /// The tokens of a conversation; message text never becomes control tokens.
    pub fn encode_chat(
        &self,
        messages: &[Message],
        turn: Turn,
        variables: &Map<String, Value>,
    ) -> Result<Vec<TokenId>, Refusal> {
        let rendered = self.render(messages, turn, variables)?;
        Ok(self.serving.tokenizer.encode_chat(&rendered))
    }

    /// The text of a conversation.
    pub fn render(
        &self,
        messages: &[Message],
        turn: Turn,
        variables: &Map<String, Value>,
    ) -> Result<Rendered, Refusal> {
        self.render_with(messages, &[], turn, variables)
    }

    fn render_with(
        &self,
        messages: &[Message],
        tools: &[Value],
        turn: Turn,
        variables: &Map<String, Value>,
    ) -> Result<Rendered, Refusal> {
        let template = self.template()?;
        let num_bytes = messages.iter().map(|message| message.content.len()).sum();
        self.expect_bytes_fit("messages", num_bytes)?;
        let values: Vec<Value> = messages.iter().map(Message::to_template_value).collect();
        let conversation = Conversation {
            messages: &values,
            tools,
            ending: match turn {
                Turn::Opened => PromptEnding::OpenTurn,
                Turn::Left => PromptEnding::AfterMessages,
                Turn::Continued => PromptEnding::WithinFinalMessage,
            },
            variables,
        };
        let param = match turn {
            Turn::Continued => "continue_final_message",
            Turn::Opened | Turn::Left => "messages",
        };
        template
            .render_conversation(&conversation)
            .map_err(|error| refused_by_template(param, &error))
    }

    /// Refuses what needs to know what tokens stand for, if the model came without a tokenizer.
    pub fn expect_text(&self, param: &str) -> Result<(), Refusal> {
        if self.serving.tokenizer.has_text() {
            return Ok(());
        }
        let reason =
            "needs a tokenizer, and this model came without one; send token ids to /v1/completions";
        Err(for_model(param, reason))
    }

    fn encode_prompt(&self, prompt: &Prompt, bos: Bos) -> Result<Vec<TokenId>, Refusal> {
        match prompt {
            Prompt::Ids(ids) => self.known_tokens("prompt", ids),
            Prompt::Text(text) => {
                self.expect_text("prompt")?;
                self.expect_bytes_fit("prompt", text.len())?;
                Ok(self.encode_text(text, bos, SpecialText::Parse))
            }
        }
    }

    /// The tokens of raw text.
    pub fn encode_text(&self, text: &str, bos: Bos, special: SpecialText) -> Vec<TokenId> {
        match bos {
            Bos::ModelRule => self.serving.tokenizer.encode_with_bos(text, special),
            Bos::Never => self.serving.tokenizer.encode(text, special),
        }
    }

    fn request(
        &self,
        param: &'static str,
        prompt: Vec<TokenId>,
        generation: &Generation,
    ) -> Result<engine::Request, Refusal> {
        if prompt.is_empty() {
            return Err(for_model(param, "has no tokens"));
        }
        let max_tokens = self.answer_limit(param, prompt.len(), generation.ending.max_tokens)?;
        Ok(engine::Request {
            sampling: self.sampling(&generation.sampling)?,
            stop: self.stop(&generation.ending, max_tokens)?,
            logprobs: logprobs(generation),
            constraint: None,
            control_text: match generation.ending.control_names {
                ControlNames::Dropped => engine::ControlText::Dropped,
                ControlNames::Shown => engine::ControlText::Shown,
            },
            arrived: self.arrived,
            prompt,
        })
    }

    /// How many answer tokens there may be: what is asked for, if it fits behind the
    /// prompt; else all that fits, up to the server's own limit.
    fn answer_limit(
        &self,
        param: &'static str,
        num_prompt: usize,
        asked: Option<AnswerLimit>,
    ) -> Result<u32, Refusal> {
        let num_tokens_max = self.sequence_tokens_max();
        let context = self.context_words();
        let room = num_tokens_max.saturating_sub(num_prompt);
        // To score a prompt no answer needs room.
        let scores =
            num_prompt == num_tokens_max && asked.is_some_and(|asked| asked.num_tokens == 0);
        if room == 0 && !scores {
            let message = format!(
                "{context} However, your {param} resulted in {num_prompt} tokens, which leaves no room for an answer."
            );
            let param = param.to_owned();
            return Err(Refusal::ContextLength { param, message });
        }
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let of_class = self.class.and_then(|class| class.output_tokens_max);
        let of_class = of_class.unwrap_or(u32::MAX);
        match asked {
            None => Ok(room.min(self.limits.answer_tokens_default).min(of_class)),
            Some(asked) if asked.num_tokens > of_class => {
                let name = self.class.map_or("", |class| &class.name);
                let reason = format!(
                    "is {}, but the class {name} allows answers of at most {of_class} tokens",
                    asked.num_tokens
                );
                Err(for_model(asked.param, reason))
            }
            Some(asked) if asked.num_tokens <= room => Ok(asked.num_tokens),
            Some(AnswerLimit {
                num_tokens,
                param: limit_param,
            }) => {
                let total = num_prompt as u64 + u64::from(num_tokens);
                let message = format!(
                    "{context} However, you requested {total} tokens ({num_prompt} in the {param}, {num_tokens} in the completion)."
                );
                Err(Refusal::ContextLength {
                    param: limit_param.to_owned(),
                    message,
                })
            }
        }
    }

    /// Refuses text that cannot fit whatever its tokens are, without encoding it.
    pub fn expect_bytes_fit(&self, param: &'static str, num_bytes: usize) -> Result<(), Refusal> {
        let num_tokens_min = num_bytes.div_ceil(self.serving.token_bytes_max);
        let num_tokens_max = self.sequence_tokens_max();
        if num_tokens_min < num_tokens_max {
            return Ok(());
        }
        let context = self.context_words();
        let message = format!(
            "{context} However, your {param} resulted in at least {num_tokens_min} tokens."
        );
        let param = param.to_owned();
        Err(Refusal::ContextLength { param, message })
    }

    fn sampling(&self, asked: &api::params::Sampling) -> Result<engine::Sampling, Refusal> {
        let defaults = &self.serving.facts.defaults;
        let or = |asked: Option<f64>, default: Option<f32>, openai: f32| {
            asked
                .map(|value| value as f32)
                .or(default)
                .unwrap_or(openai)
        };
        let ids: Vec<u32> = asked.logit_bias.keys().copied().collect();
        let biased = self.known_tokens("logit_bias", &ids)?;
        Ok(engine::Sampling {
            // A temperature too small for 32 bits becomes 0, which is its limit: greedy.
            temperature: or(asked.temperature, defaults.temperature, 1.0),
            top_k: match asked.top_k {
                Some(TopK::All) => None,
                Some(TopK::Keep(num_kept)) => Some(num_kept),
                None => defaults.top_k,
            },
            // Not 0, which would keep nothing.
            top_p: or(asked.top_p, defaults.top_p, 1.0).max(f32::MIN_POSITIVE),
            min_p: or(asked.min_p, defaults.min_p, 0.0),
            repetition_penalty: or(asked.repetition_penalty, defaults.repetition_penalty, 1.0),
            presence_penalty: or(asked.presence_penalty, None, 0.0),
            frequency_penalty: or(asked.frequency_penalty, None, 0.0),
            logit_bias: biased
                .into_iter()
                .zip(asked.logit_bias.values().copied())
                .collect(),
            allowed: match &asked.allowed_token_ids {
                Some(ids) => Some(self.known_tokens("allowed_token_ids", ids)?),
                None => None,
            },
            bad_words: match asked.bad_words.is_empty() {
                true => Vec::new(),
                false => {
                    self.expect_text("bad_words")?;
                    self.bad_words(&asked.bad_words)
                }
            },
            // The same bits: negative seeds are seeds like any other.
            seed: asked.seed.map(i64::cast_unsigned),
        })
    }

    /// The tokens of each word as it stands at the beginning of a text, and after a space where
    /// those differ.
    fn bad_words(&self, words: &[String]) -> Vec<Vec<TokenId>> {
        let tokenizer = &self.serving.tokenizer;
        let mut sequences: Vec<Vec<TokenId>> = Vec::new();
        for word in words {
            let word = word.trim_start();
            for text in [word.to_owned(), format!(" {word}")] {
                let tokens = tokenizer.encode(&text, SpecialText::Parse);
                if !tokens.is_empty() && !sequences.contains(&tokens) {
                    sequences.push(tokens);
                }
            }
        }
        sequences
    }

    fn stop(&self, asked: &Ending, max_tokens: u32) -> Result<engine::Stop, Refusal> {
        if asked.min_tokens > max_tokens {
            let reason = format!("must not exceed the answer limit, here {max_tokens}");
            return Err(for_model("min_tokens", reason));
        }
        if !asked.stops.is_empty() {
            // They would never be found in an answer without text.
            self.expect_text("stop")?;
        }
        Ok(engine::Stop {
            max_tokens,
            min_tokens: asked.min_tokens,
            strings: asked.stops.clone(),
            token_ids: self.known_tokens("stop_token_ids", &asked.stop_token_ids)?,
            ignore_eos: asked.end_tokens == EndTokens::Ignored,
        })
    }

    /// Ids that the vocabulary has.
    pub fn known_tokens(&self, param: &str, ids: &[u32]) -> Result<Vec<TokenId>, Refusal> {
        let vocab = self.serving.tokenizer.vocab();
        match ids.iter().find(|&&id| id as usize >= vocab) {
            None => Ok(ids.iter().copied().map(TokenId).collect()),
            Some(id) => {
                let reason = format!("names token {id}, but the vocabulary has {vocab} tokens");
                Err(for_model(param, reason))
            }
        }
    }
}

/// What the engine must tell: to rank answers, the sum at least.
fn logprobs(generation: &Generation) -> engine::Logprobs {
    let (report, answers) = (&generation.report, generation.answers);
    let ranked = (answers.num_made > answers.num_kept).then_some(0);
    let echoed = match report.echo {
        Told::Told => report.logprobs,
        Told::Left => None,
    };
    engine::Logprobs {
        answer: report.logprobs.max(ranked),
        prompt: report.prompt_logprobs.max(echoed),
    }
}

fn for_model(param: &str, reason: impl Into<String>) -> Refusal {
    Refusal::ForModel {
        param: param.to_owned(),
        reason: reason.into(),
    }
}

fn refused_by_template(param: &str, error: &TemplateError) -> Refusal {
    match error {
        TemplateError::Refused { .. } | TemplateError::TooMuch { .. } => {
            // The template's words are its author's (or quote a role): short and worth telling.
            let reason: String = error.to_string().chars().take(200).collect();
            for_model(param, format!("cannot be rendered: {reason}"))
        }
        TemplateError::Syntax { .. } => {
            tracing::error!(%error, "a compiled template turned out not to parse");
            Refusal::Panicked
        }
    }
}
