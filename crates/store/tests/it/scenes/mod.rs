//! The scenes of the protocol of claims, turns and entries, and the flaws that each must find: one
//! list for the model (`interleavings.rs`) and for shuttle, which runs the code itself
//! (`shuttle.rs`), so that neither goes without the other.

/// A scene.
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    /// Flaws that the model and the real code have, found by both.
    pub(crate) flaws: &'static [&'static str],
    /// Flaws that show on a weak memory only, or in orders so rare that chance does not come upon
    /// them: the model's.
    pub(crate) model: &'static [&'static str],
    /// Whether it is played on the code too.
    pub(crate) in_code: bool,
}

/// All of them.
pub(crate) const SCENES: &[Scene] = &[
    Scene {
        name: "copies",
        flaws: &["NoTurns", "TurnNotCounted"],
        model: &["NoFenceAfterCopy", "NoFenceAfterClaim", "NoMediumFence"],
        in_code: true,
    },
    Scene {
        name: "copies and batches",
        flaws: &["NoSecondEntry", "NoTurns"],
        model: &["NoFenceAfterClaim", "TurnsBeforeEntry"],
        in_code: true,
    },
    Scene {
        name: "references",
        flaws: &["NoSecondLook", "LetGoUnlocked", "TakeViewed", "ViewOfClaimed"],
        model: &["UnviewRelaxed", "ClaimRelaxed", "NoMediumFence"],
        in_code: true,
    },
    Scene { name: "references and batches", flaws: &["LetGoOld"], model: &[], in_code: true },
    Scene { name: "destaging", flaws: &["ViewGoneEarly"], model: &[], in_code: true },
    Scene {
        name: "home",
        flaws: &["NoEvictions", "EntryAfterEvictions"],
        model: &[],
        in_code: true,
    },
    Scene { name: "map pages", flaws: &["PagesLetGoEarly"], model: &[], in_code: true },
    Scene { name: "cuts", flaws: &["OldSize"], model: &[], in_code: true },
    Scene {
        name: "laid out",
        flaws: &["GuessTrusted", "NoTurns"],
        model: &["NoFenceAfterTake", "NoMediumFence"],
        in_code: true,
    },
    Scene { name: "references and laid out", flaws: &["OwnedUnseen"], model: &[], in_code: true },
    // How long the tier is goes one way, and is seen by all at once but on a weak memory.
    Scene { name: "growing", flaws: &[], model: &["GuessRelaxed"], in_code: false },
    Scene { name: "cut and switch", flaws: &["SizeBeforeLane"], model: &[], in_code: true },
    Scene {
        name: "drain against own",
        flaws: &["OwnWithoutMeta", "MetaGoneEarly", "DrainRewritten", "FreedEarly", "OldGuess"],
        model: &[],
        in_code: true,
    },
    Scene {
        name: "redo",
        flaws: &["TurnNotCounted"],
        model: &["EvictionsForTurns"],
        in_code: true,
    },
];

/// The scene with this name.
pub(crate) fn scene(name: &str) -> &'static Scene {
    let found = SCENES.iter().find(|scene| scene.name == name);
    found.unwrap_or_else(|| panic!("no scene `{name}` is in tests/scenes"))
}
