//! A request that was let in, and what it holds of its tenant's allowance.
//!
//! What it takes (a place, tokens and money put aside) comes back once, however it ends, because the exchange and the
//! pass hold one [`Stay`] together and its end gives all back: the exchange says at its own end what was used, and
//! whoever is dropped last ends the stay.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::refusal;
use super::tenants::Tenant;
use crate::clock::{self, Clock};
use crate::config::plan::TenantPlan;
use crate::decide::{Expense, Refused, Reserved, Zones};
use crate::fault::{Fault, Quota};
use crate::observe::{Exchange, Spent};
use crate::units::{ModelName, Seconds};

/// A request that was let in.
pub struct Pass(Option<Guest>);

struct Guest {
    clock: Clock,
    stay: Arc<Stay>,
}

/// What a request holds of its tenant's allowance.
struct Stay {
    tenant: Arc<Tenant>,
    bill: Mutex<Bill>,
}

/// What was put aside, and what was used as soon as that is known.
#[derive(Default)]
struct Bill {
    reserved: Reserved,
    used: Option<Reserved>,
    /// Put aside of the budgets.
    expected: Option<Expense>,
    spent: Expense,
}

impl Pass {
    /// One for whom nobody keeps accounts.
    pub(super) const OPEN: Pass = Pass(None);

    /// A request of a tenant, if that may have one more open.
    ///
    /// # Errors
    /// `rate_limited` by requests.
    pub(super) fn of(
        tenant: Arc<Tenant>,
        clock: Clock,
        exchange: &mut Exchange,
    ) -> Result<Self, Fault> {
        exchange.set_tenant(&tenant.series);
        let begun = tenant.allowance.lock().begin(clock.now());
        begun.map_err(|refused| refusal::limited(refused, Reserved::default()))?;
        let bill = Mutex::default();
        let stay = Arc::new(Stay { tenant, bill });
        let told = Arc::clone(&stay);
        exchange.at_end(Box::new(move |spent| told.settle(spent)));
        Ok(Pass(Some(Guest { clock, stay })))
    }

    /// The models that it may use; `None` is all.
    #[must_use]
    pub fn models(&self) -> Option<&BTreeSet<ModelName>> {
        self.plan()?.models.as_ref()
    }

    /// Whether it may use a model.
    #[must_use]
    pub fn may_use(&self, model: &ModelName) -> bool {
        self.models().is_none_or(|models| models.contains(model))
    }

    /// The class of its requests, unless they ask for a lower one; 0 is the highest.
    #[must_use]
    pub fn class(&self) -> u8 {
        self.plan().map_or(0, |plan| plan.class)
    }

    /// Where its requests may go; anywhere when absent.
    #[must_use]
    pub fn zones(&self) -> Option<Zones> {
        self.plan()?.zones.as_ref().map(|zones| zones.set)
    }

    /// The tenant's number, counted from 1; 0 without tenants.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.as_ref().map_or(0, |guest| guest.stay.tenant.number)
    }

    /// Whose prompts are kept apart from others', if they are.
    #[must_use]
    pub fn apart(&self) -> Option<&str> {
        let plan = self.plan().filter(|plan| plan.private_prefix)?;
        Some(&plan.name)
    }

    /// Asks for a model, and for so many tokens beforehand.
    ///
    /// # Errors
    /// `forbidden`, and `rate_limited` by tokens.
    pub fn ask(&self, model: Option<&ModelName>, tokens: Reserved) -> Result<(), Fault> {
        let Some(Guest { clock, stay }) = &self.0 else {
            return Ok(());
        };
        if model.is_some_and(|model| !self.may_use(model)) {
            return Err(refusal::not_its_model(self.models().into_iter().flatten()));
        }
        stay.reserve(tokens, clock.now())
            .map_err(|refused| refusal::limited(refused, tokens))
    }

    /// Puts aside what it is expected to cost, where there is a budget.
    ///
    /// # Errors
    /// `rate_limited` by a budget.
    pub fn afford(&self, forecast: impl FnOnce() -> Expense) -> Result<(), Fault> {
        let Some(Guest { stay, .. }) = &self.0 else {
            return Ok(());
        };
        if stay.tenant.plan.budgets.is_empty() {
            return Ok(());
        }
        let expected = forecast();
        let put_aside = stay.tenant.purse.lock().reserve(expected, clock::wall());
        put_aside.map_err(|overdrawn| refusal::overdrawn(&overdrawn))?;
        stay.bill.lock().expected = Some(expected);
        Ok(())
    }

    /// How its tightest limit by the minute stands, if there is one.
    #[must_use]
    pub fn quota(&self) -> Option<Quota> {
        let Guest { clock, stay } = self.0.as_ref()?;
        stay.tenant.allowance.lock().tightest(clock.now())
    }

    fn plan(&self) -> Option<&TenantPlan> {
        self.0.as_ref().map(|guest| &guest.stay.tenant.plan)
    }
}

impl Stay {
    fn reserve(&self, tokens: Reserved, now: Seconds) -> Result<(), Refused> {
        self.tenant.allowance.lock().reserve(tokens, now)?;
        self.bill.lock().reserved = tokens;
        Ok(())
    }

    /// Takes note of what was used: no tokens, if no worker did anything for it.
    fn settle(&self, spent: Spent) {
        let mut bill = self.bill.lock();
        bill.used = Some(if spent.served {
            bill.reserved.settled(spent.prompt, spent.output)
        } else {
            Reserved::default()
        });
        bill.spent = spent.expense;
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let Bill {
            reserved,
            used,
            expected,
            spent,
        } = *self.bill.get_mut();
        let used = used.unwrap_or(reserved);
        self.tenant.allowance.lock().end(reserved, used);
        if let Some(expected) = expected {
            let mut purse = self.tenant.purse.lock();
            purse.settle(expected, spent, clock::wall());
        }
    }
}
