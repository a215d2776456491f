//! What the tensors of a decoder are called, and which part of a tensor plays which role.
//!
//! The one idea: a role has a *place*: a tensor's name, its whole shape, and where in it the role's outputs begin. So
//! fused projections, stacked experts and transposed matrices are places like any other, and whoever reads
//! weights knows none of these words.
//!
//! Sources: the GGUF specification's tensor names; names that transformers saves.

use crate::inventory::{LayerRole, Part, Role};
use crate::source::SourceRef;
use crate::spec::{DecoderSpec, NormPlacement};

/// Where a role's values lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The tensor's name.
    pub tensor: String,
    /// Its whole shape, fastest axis first.
    pub dims: Vec<usize>,
    /// The first output (row of a matrix, element of a vector) that is the role's.
    pub first: usize,
    /// Which axis the outputs run along.
    pub orientation: Orientation,
}

/// How a matrix is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orientation {
    /// An output's weights lie together: `[inputs, outputs]`, fastest axis first.
    Rows,
    /// An input's weights lie together: `[outputs, inputs]`.
    Columns,
}

/// How a source names its tensors.
#[derive(Clone, Debug)]
pub(crate) enum Naming {
    /// `blk.0.attn_q.weight`.
    Gguf(GgufNames),
    /// `model.layers.0.self_attn.q_proj.weight`.
    Folder(FolderNames),
}

/// Which of the format's variants a GGUF file has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GgufNames {
    fused_qkv: bool,
    fused_gate_up: bool,
    /// An older way: a tensor per expert.
    split_experts: bool,
}

/// Which variant a folder has.
#[derive(Clone, Debug)]
pub(crate) struct FolderNames {
    prefix: &'static str,
    style: FolderStyle,
    fused_qkv: bool,
    fused_gate_up: bool,
    experts: ExpertNames,
    /// `c_fc`, `c_proj` instead of `up_proj`, `down_proj`.
    plain_feed_forward: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FolderStyle {
    Llama,
    Gpt2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpertNames {
    /// `block_sparse_moe.experts.0.w1`.
    Mixtral,
    /// `mlp.experts.0.gate_proj`.
    Qwen,
}

impl Naming {
    /// The naming of a source, seen by its tensors.
    pub(crate) fn of(source: SourceRef<'_>) -> Naming {
        let has = |name: &str| source.has_tensor(name);
        if let SourceRef::Gguf(_) = source {
            let dim = |name: &str, axis: usize| source.dims(name)?.get(axis).copied();
            let up_outputs = dim("blk.0.ffn_up.weight", 1);
            let down_inputs = dim("blk.0.ffn_down.weight", 0);
            return Naming::Gguf(GgufNames {
                fused_qkv: has("blk.0.attn_qkv.weight"),
                // Twice as wide on the way up as on the way down: the gate is in there too.
                fused_gate_up: !has("blk.0.ffn_gate.weight")
                    && up_outputs
                        .zip(down_inputs)
                        .is_some_and(|(up, down)| up / 2 == down && up % 2 == 0),
                split_experts: has("blk.0.ffn_gate.0.weight"),
            });
        }
        let gpt2 = ["transformer.", ""]
            .into_iter()
            .find(|prefix| has(&format!("{prefix}wte.weight")));
        let llama = ["model.", ""]
            .into_iter()
            .find(|prefix| has(&format!("{prefix}embed_tokens.weight")));
        let (prefix, style) = match (llama, gpt2) {
            (None, Some(prefix)) => (prefix, FolderStyle::Gpt2),
            (prefix, _) => (prefix.unwrap_or("model."), FolderStyle::Llama),
        };
        let has_in_layer = |suffix: &str| has(&format!("{prefix}layers.0.{suffix}.weight"));
        Naming::Folder(FolderNames {
            prefix,
            style,
            fused_qkv: has_in_layer("self_attn.qkv_proj"),
            fused_gate_up: has_in_layer("mlp.gate_up_proj"),
            experts: match has_in_layer("block_sparse_moe.gate") {
                true => ExpertNames::Mixtral,
                false => ExpertNames::Qwen,
            },
            plain_feed_forward: has_in_layer("mlp.c_fc"),
        })
    }

    /// The tensor that `role` lies in.
    pub(crate) fn place(&self, role: Role, spec: &DecoderSpec) -> Place {
        let outputs = |role: Role| role.part(spec).outputs();
        let plain = |tensor: String| Place {
            tensor,
            dims: role.part(spec).dims(),
            first: 0,
            orientation: Orientation::Rows,
        };
        let Role::Layer(layer_idx, layer_role) = role else {
            let tensor = self.name(role, spec.norm.placement);
            return plain(tensor);
        };
        let of = |role| Role::Layer(layer_idx, role);
        let fused = |tensor: String, members: &[LayerRole]| {
            let before = members.iter().take_while(|member| **member != layer_role);
            let first = before.map(|member| outputs(of(*member))).sum();
            let total = members.iter().map(|member| outputs(of(*member))).sum();
            let mut dims = role.part(spec).dims();
            *dims.last_mut().expect("a part has outputs") = total;
            Place {
                tensor,
                dims,
                first,
                orientation: Orientation::Rows,
            }
        };
        use LayerRole::{Gate, Key, KeyBias, Query, QueryBias, Up, Value, ValueBias};
        let tensor = self.name(role, spec.norm.placement);
        let place = match layer_role {
            Query | Key | Value if self.fuses_qkv() => fused(tensor, &[Query, Key, Value]),
            QueryBias | KeyBias | ValueBias if self.fuses_qkv() => {
                fused(tensor, &[QueryBias, KeyBias, ValueBias])
            }
            Gate | Up if self.fuses_gate_up(spec) => fused(tensor, &[Gate, Up]),
            LayerRole::ExpertGate(idx) | LayerRole::ExpertUp(idx) | LayerRole::ExpertDown(idx)
                if self.stacks_experts() =>
            {
                let mut dims = role.part(spec).dims();
                let num_outputs = outputs(role);
                dims.push(spec.experts.map_or(1, |experts| experts.num_experts));
                Place {
                    tensor,
                    dims,
                    first: idx * num_outputs,
                    orientation: Orientation::Rows,
                }
            }
            _ => plain(tensor),
        };
        match (self, role.part(spec)) {
            (Naming::Folder(names), Part::Matrix { .. }) if names.style == FolderStyle::Gpt2 => {
                Place {
                    dims: place.dims.into_iter().rev().collect(),
                    orientation: Orientation::Columns,
                    ..place
                }
            }
            _ => place,
        }
    }

    fn fuses_qkv(&self) -> bool {
        match self {
            Naming::Gguf(names) => names.fused_qkv,
            Naming::Folder(names) => names.fused_qkv || names.style == FolderStyle::Gpt2,
        }
    }

    fn fuses_gate_up(&self, spec: &DecoderSpec) -> bool {
        use crate::spec::FeedForwardShape::Gated;
        let is_fused = match self {
            Naming::Gguf(names) => names.fused_gate_up,
            Naming::Folder(names) => names.fused_gate_up,
        };
        is_fused && spec.feed_forward.shape == Gated
    }

    fn stacks_experts(&self) -> bool {
        matches!(self, Naming::Gguf(names) if !names.split_experts)
    }

    /// The name of the tensor that `role` lies in.
    pub(crate) fn name(&self, role: Role, placement: NormPlacement) -> String {
        match self {
            Naming::Gguf(names) => names.name(role),
            Naming::Folder(names) => names.name(role, placement),
        }
    }
}

impl GgufNames {
    fn name(self, role: Role) -> String {
        let (layer_idx, role) = match role {
            Role::Embedding => return "token_embd.weight".to_owned(),
            Role::Positions => return "position_embd.weight".to_owned(),
            Role::FinalNorm => return "output_norm.weight".to_owned(),
            Role::FinalNormBias => return "output_norm.bias".to_owned(),
            Role::Head => return "output.weight".to_owned(),
            Role::RopeDivisors => return "rope_freqs.weight".to_owned(),
            Role::Layer(layer_idx, role) => (layer_idx, role),
        };
        let expert = |name: &str, idx: usize| match self.split_experts {
            true => format!("ffn_{name}.{idx}.weight"),
            false => format!("ffn_{name}_exps.weight"),
        };
        let qkv = |own: &'static str, fused: &'static str| {
            (if self.fused_qkv { fused } else { own }).to_owned()
        };
        let suffix = match role {
            LayerRole::AttentionNorm => "attn_norm.weight".to_owned(),
            LayerRole::AttentionNormBias => "attn_norm.bias".to_owned(),
            LayerRole::Query => qkv("attn_q.weight", "attn_qkv.weight"),
            LayerRole::Key => qkv("attn_k.weight", "attn_qkv.weight"),
            LayerRole::Value => qkv("attn_v.weight", "attn_qkv.weight"),
            LayerRole::QueryBias => qkv("attn_q.bias", "attn_qkv.bias"),
            LayerRole::KeyBias => qkv("attn_k.bias", "attn_qkv.bias"),
            LayerRole::ValueBias => qkv("attn_v.bias", "attn_qkv.bias"),
            LayerRole::QueryNorm => "attn_q_norm.weight".to_owned(),
            LayerRole::KeyNorm => "attn_k_norm.weight".to_owned(),
            LayerRole::AttentionOutput => "attn_output.weight".to_owned(),
            LayerRole::AttentionOutputBias => "attn_output.bias".to_owned(),
            LayerRole::AttentionPostNorm => "post_attention_norm.weight".to_owned(),
            LayerRole::FeedForwardNorm => "ffn_norm.weight".to_owned(),
            LayerRole::FeedForwardNormBias => "ffn_norm.bias".to_owned(),
            LayerRole::Gate if self.fused_gate_up => "ffn_up.weight".to_owned(),
            LayerRole::Gate => "ffn_gate.weight".to_owned(),
            LayerRole::Up => "ffn_up.weight".to_owned(),
            LayerRole::Down => "ffn_down.weight".to_owned(),
            LayerRole::GateBias => "ffn_gate.bias".to_owned(),
            LayerRole::UpBias => "ffn_up.bias".to_owned(),
            LayerRole::DownBias => "ffn_down.bias".to_owned(),
            LayerRole::Router => "ffn_gate_inp.weight".to_owned(),
            LayerRole::ExpertGate(idx) => expert("gate", idx),
            LayerRole::ExpertUp(idx) => expert("up", idx),
            LayerRole::ExpertDown(idx) => expert("down", idx),
            LayerRole::FeedForwardPostNorm => "post_ffw_norm.weight".to_owned(),
        };
        format!("blk.{layer_idx}.{suffix}")
    }
}

impl FolderNames {
    fn name(&self, role: Role, placement: NormPlacement) -> String {
        let prefix = self.prefix;
        match (self.style, role) {
            (_, Role::Head) => "lm_head.weight".to_owned(),
            (_, Role::RopeDivisors) => "rope_freqs.weight".to_owned(),
            (FolderStyle::Llama, Role::Embedding) => format!("{prefix}embed_tokens.weight"),
            (FolderStyle::Llama, Role::FinalNorm) => format!("{prefix}norm.weight"),
            (FolderStyle::Llama, Role::FinalNormBias) => format!("{prefix}norm.bias"),
            (FolderStyle::Llama, Role::Positions) => format!("{prefix}embed_positions.weight"),
            (FolderStyle::Gpt2, Role::Embedding) => format!("{prefix}wte.weight"),
            (FolderStyle::Gpt2, Role::Positions) => format!("{prefix}wpe.weight"),
            (FolderStyle::Gpt2, Role::FinalNorm) => format!("{prefix}ln_f.weight"),
            (FolderStyle::Gpt2, Role::FinalNormBias) => format!("{prefix}ln_f.bias"),
            (FolderStyle::Llama, Role::Layer(layer_idx, role)) => {
                format!(
                    "{prefix}layers.{layer_idx}.{}",
                    self.suffix(role, placement)
                )
            }
            (FolderStyle::Gpt2, Role::Layer(layer_idx, role)) => {
                format!("{prefix}h.{layer_idx}.{}", gpt2_suffix(role))
            }
        }
    }

    fn suffix(&self, role: LayerRole, placement: NormPlacement) -> String {
        let attention = |own: &str| match self.fused_qkv {
            true => "self_attn.qkv_proj".to_owned(),
            false => format!("self_attn.{own}"),
        };
        let [gate, up, down] = match (self.plain_feed_forward, self.fused_gate_up) {
            (true, _) => ["gate_proj", "c_fc", "c_proj"],
            (_, true) => ["gate_up_proj", "gate_up_proj", "down_proj"],
            _ => ["gate_proj", "up_proj", "down_proj"],
        };
        let expert = |idx: usize, mixtral: &str, qwen: &str| match self.experts {
            ExpertNames::Mixtral => format!("block_sparse_moe.experts.{idx}.{mixtral}.weight"),
            ExpertNames::Qwen => format!("mlp.experts.{idx}.{qwen}.weight"),
        };
        // Families that normalise results call the norm after attention what others call the one after it in
        // the file, before the feed-forward layer.
        let feed_forward_norm = match placement {
            NormPlacement::Before => "post_attention_layernorm",
            NormPlacement::BeforeAndAfter | NormPlacement::After => "pre_feedforward_layernorm",
        };
        match role {
            LayerRole::AttentionNorm => "input_layernorm.weight".to_owned(),
            LayerRole::AttentionNormBias => "input_layernorm.bias".to_owned(),
            LayerRole::Query => attention("q_proj") + ".weight",
            LayerRole::Key => attention("k_proj") + ".weight",
            LayerRole::Value => attention("v_proj") + ".weight",
            LayerRole::QueryBias => attention("q_proj") + ".bias",
            LayerRole::KeyBias => attention("k_proj") + ".bias",
            LayerRole::ValueBias => attention("v_proj") + ".bias",
            LayerRole::QueryNorm => "self_attn.q_norm.weight".to_owned(),
            LayerRole::KeyNorm => "self_attn.k_norm.weight".to_owned(),
            LayerRole::AttentionOutput => "self_attn.o_proj.weight".to_owned(),
            LayerRole::AttentionOutputBias => "self_attn.o_proj.bias".to_owned(),
            LayerRole::AttentionPostNorm => "post_attention_layernorm.weight".to_owned(),
            LayerRole::FeedForwardNorm => format!("{feed_forward_norm}.weight"),
            LayerRole::FeedForwardNormBias => format!("{feed_forward_norm}.bias"),
            LayerRole::Gate => format!("mlp.{gate}.weight"),
            LayerRole::Up => format!("mlp.{up}.weight"),
            LayerRole::Down => format!("mlp.{down}.weight"),
            LayerRole::GateBias => format!("mlp.{gate}.bias"),
            LayerRole::UpBias => format!("mlp.{up}.bias"),
            LayerRole::DownBias => format!("mlp.{down}.bias"),
            LayerRole::Router => match self.experts {
                ExpertNames::Mixtral => "block_sparse_moe.gate.weight".to_owned(),
                ExpertNames::Qwen => "mlp.gate.weight".to_owned(),
            },
            LayerRole::ExpertGate(idx) => expert(idx, "w1", "gate_proj"),
            LayerRole::ExpertUp(idx) => expert(idx, "w3", "up_proj"),
            LayerRole::ExpertDown(idx) => expert(idx, "w2", "down_proj"),
            LayerRole::FeedForwardPostNorm => "post_feedforward_layernorm.weight".to_owned(),
        }
    }
}

/// GPT-2 has a vocabulary of its own; what it has no place for gets a name that no file has.
fn gpt2_suffix(role: LayerRole) -> &'static str {
    match role {
        LayerRole::AttentionNorm => "ln_1.weight",
        LayerRole::AttentionNormBias => "ln_1.bias",
        LayerRole::Query | LayerRole::Key | LayerRole::Value => "attn.c_attn.weight",
        LayerRole::QueryBias | LayerRole::KeyBias | LayerRole::ValueBias => "attn.c_attn.bias",
        LayerRole::AttentionOutput => "attn.c_proj.weight",
        LayerRole::AttentionOutputBias => "attn.c_proj.bias",
        LayerRole::FeedForwardNorm => "ln_2.weight",
        LayerRole::FeedForwardNormBias => "ln_2.bias",
        LayerRole::Up => "mlp.c_fc.weight",
        LayerRole::UpBias => "mlp.c_fc.bias",
        LayerRole::Down => "mlp.c_proj.weight",
        LayerRole::DownBias => "mlp.c_proj.bias",
        LayerRole::QueryNorm
        | LayerRole::KeyNorm
        | LayerRole::AttentionPostNorm
        | LayerRole::Gate
        | LayerRole::GateBias
        | LayerRole::Router
        | LayerRole::ExpertGate(_)
        | LayerRole::ExpertUp(_)
        | LayerRole::ExpertDown(_)
        | LayerRole::FeedForwardPostNorm => "(not of this family)",
    }
}
