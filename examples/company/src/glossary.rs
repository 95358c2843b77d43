//! The company's words: a tool whose answer has a schema too.

use std::collections::BTreeMap;

use agentenv_protocol::prelude::*;

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Term {
    /// What it stands for.
    meaning: String,
    /// Terms to look up next.
    #[serde(default)]
    see_also: Vec<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Glossary {
    terms: BTreeMap<String, Term>,
}

/// What the company's abbreviations stand for.
#[environment_card(name = "glossary")]
#[derive(Default)]
struct GlossaryEnv {
    #[data]
    glossary: Data<Glossary>,
}

#[environment]
impl GlossaryEnv {
    /// Define a term or an abbreviation.
    #[tool(name = "{environment_name}_define", read_only, output_schema)]
    fn define(&self, term: String) -> Result<Term, ToolError> {
        let found = self.glossary.read(|glossary| {
            let mut terms = glossary.terms.iter();
            terms.find(|(name, _)| name.eq_ignore_ascii_case(&term)).map(|(_, meaning)| meaning.clone())
        });
        found.ok_or_else(|| ToolError::new("no_term", format!("nobody has defined '{term}'")))
    }
}
