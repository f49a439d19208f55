//! What a client does next: one of five transactions, with its input.
//!
//! The mix is a deck of a hundred cards, mixed up again when it is dealt (clause 5.2.4.2): of every
//! hundred transactions of a client 45 are New-Order, 43 Payment, and four of each of the others.

use std::time::Duration;

use super::Settings;
use super::random::Random;
use super::rows::DISTRICTS;

/// Who a transaction is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Customer {
    /// By number.
    Number(u32),
    /// By last name: of several the one in the middle, by first name.
    Name(String),
}

/// A line of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The item; one that is not there ends the transaction.
    pub item: u32,
    /// The warehouse it comes from.
    pub from: u32,
    /// How many.
    pub quantity: u32,
}

/// A new order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The warehouse of the client.
    pub warehouse: u32,
    /// The district.
    pub district: u32,
    /// Who orders.
    pub customer: u32,
    /// What.
    pub lines: Vec<Line>,
}

/// A payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payment {
    /// Where it is paid.
    pub warehouse: u32,
    /// Where it is paid.
    pub district: u32,
    /// Where the customer is from.
    pub of_warehouse: u32,
    /// Where the customer is from.
    pub of_district: u32,
    /// Who pays.
    pub customer: Customer,
    /// How much.
    pub cents: i64,
}

/// A transaction with its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Clause 2.4.
    NewOrder(Order),
    /// Clause 2.5.
    Payment(Payment),
    /// Clause 2.6: the last order of a customer.
    OrderStatus {
        /// Where.
        warehouse: u32,
        /// Where.
        district: u32,
        /// Whose.
        customer: Customer,
    },
    /// Clause 2.7: the oldest order of each district.
    Delivery {
        /// Where.
        warehouse: u32,
        /// By whom.
        carrier: u32,
    },
    /// Clause 2.8: items of the last orders that are running out.
    StockLevel {
        /// Where.
        warehouse: u32,
        /// Where.
        district: u32,
        /// Fewer than this.
        threshold: u32,
    },
}

#[derive(Clone, Copy)]
enum Card {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

/// How many of each are in the deck.
const DECK: [(Card, usize); 5] = [
    (Card::NewOrder, 45),
    (Card::Payment, 43),
    (Card::OrderStatus, 4),
    (Card::Delivery, 4),
    (Card::StockLevel, 4),
];

impl Input {
    /// Seconds to type it, and the mean of those to think about its answer (clause 5.2.5.7).
    fn pace_s(&self) -> (f64, f64) {
        match self {
            Input::NewOrder(_) => (18.0, 12.0),
            Input::Payment(_) => (3.0, 12.0),
            Input::OrderStatus { .. } => (2.0, 10.0),
            Input::Delivery { .. } => (2.0, 5.0),
            Input::StockLevel { .. } => (2.0, 5.0),
        }
    }
}

/// The transactions of one client, without end.
pub struct Plan {
    settings: Settings,
    random: Random,
    warehouse: u32,
    district: u32,
    deck: Vec<Card>,
}

impl Plan {
    /// Of the client with this number, from 0. Each has a warehouse and a district of its own.
    pub fn new(settings: &Settings, seed: u64, client: u32) -> Plan {
        let random = Random::new(seed, u64::from(client) + (1 << 32));
        Plan {
            settings: *settings,
            random,
            warehouse: client % settings.warehouses + 1,
            district: client / settings.warehouses % DISTRICTS + 1,
            deck: Vec::new(),
        }
    }

    /// The next transaction.
    pub fn draw(&mut self) -> Input {
        if self.deck.is_empty() {
            self.deck = DECK.iter().flat_map(|(card, count)| vec![*card; *count]).collect();
            self.random.shuffle(&mut self.deck);
        }
        let warehouse = self.warehouse;
        match self.deck.pop().unwrap_or(Card::NewOrder) {
            Card::NewOrder => Input::NewOrder(self.order()),
            Card::Payment => Input::Payment(self.payment()),
            Card::OrderStatus => {
                let district = self.random.number(1, DISTRICTS);
                Input::OrderStatus { warehouse, district, customer: self.customer() }
            }
            Card::Delivery => Input::Delivery { warehouse, carrier: self.random.number(1, 10) },
            Card::StockLevel => Input::StockLevel {
                warehouse,
                district: self.district,
                threshold: self.random.number(10, 20),
            },
        }
    }

    /// How long a person types a transaction before it begins, and thinks when it has ended.
    pub fn pace(&mut self, input: &Input) -> Option<(Duration, Duration)> {
        if !self.settings.think {
            return None;
        }
        let (keying, think) = input.pace_s();
        Some((Duration::from_secs_f64(keying), Duration::from_secs_f64(self.random.think_s(think))))
    }

    /// A warehouse other than one's own, if there is one.
    fn elsewhere(&mut self) -> u32 {
        let others = self.settings.warehouses - 1;
        if others == 0 {
            return self.warehouse;
        }
        let drawn = self.random.number(1, others);
        if drawn >= self.warehouse { drawn + 1 } else { drawn }
    }

    fn customer(&mut self) -> Customer {
        if self.random.percent(60) {
            Customer::Name(self.random.last_name(self.settings.customers))
        } else {
            Customer::Number(self.random.customer(self.settings.customers))
        }
    }

    fn order(&mut self) -> Order {
        let district = self.random.number(1, DISTRICTS);
        let customer = self.random.customer(self.settings.customers);
        let count = self.random.number(5, 15);
        // One order of a hundred has an item that nobody sells, and is taken back.
        let mistaken = self.random.percent(1);
        let mut lines = Vec::with_capacity(count as usize);
        for n in 1..=count {
            let item = self.random.item(self.settings.items);
            let from = if self.random.percent(1) { self.elsewhere() } else { self.warehouse };
            let quantity = self.random.number(1, 10);
            let item = if mistaken && n == count { self.settings.items + 1 } else { item };
            lines.push(Line { item, from, quantity });
        }
        Order { warehouse: self.warehouse, district, customer, lines }
    }

    fn payment(&mut self) -> Payment {
        let district = self.random.number(1, DISTRICTS);
        let (of_warehouse, of_district) = if self.random.percent(85) {
            (self.warehouse, district)
        } else {
            (self.elsewhere(), self.random.number(1, DISTRICTS))
        };
        let cents = i64::from(self.random.number(100, 500_000));
        let customer = self.customer();
        Payment { warehouse: self.warehouse, district, of_warehouse, of_district, customer, cents }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(warehouses: u32) -> Settings {
        Settings { warehouses, ..Settings::default() }
    }

    #[test]
    fn of_every_hundred_transactions_each_kind_has_its_share() {
        let mut plan = Plan::new(&settings(2), 1, 0);
        for _ in 0..3 {
            let mut seen = [0; 5];
            for _ in 0..100 {
                seen[match plan.draw() {
                    Input::NewOrder(_) => 0,
                    Input::Payment(_) => 1,
                    Input::OrderStatus { .. } => 2,
                    Input::Delivery { .. } => 3,
                    Input::StockLevel { .. } => 4,
                }] += 1;
            }
            assert_eq!(seen, [45, 43, 4, 4, 4]);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_transactions_and_another_client_others() {
        let draw = |seed, client| {
            let mut plan = Plan::new(&settings(3), seed, client);
            (0..300).map(|_| plan.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draw(5, 1), draw(5, 1));
        assert_ne!(draw(5, 1), draw(5, 2));
        assert_ne!(draw(5, 1), draw(6, 1));
    }

    #[test]
    fn orders_come_from_elsewhere_and_are_mistaken_as_often_as_the_specification_says() {
        let mut plan = Plan::new(&settings(4), 11, 2);
        let (mut orders, mut mistaken, mut lines, mut far) = (0.0, 0.0, 0.0, 0.0);
        let (mut payments, mut strangers, mut by_name) = (0.0, 0.0, 0.0);
        for _ in 0..40_000 {
            match plan.draw() {
                Input::NewOrder(order) => {
                    assert_eq!(order.warehouse, 3);
                    assert!((5..=15).contains(&order.lines.len()));
                    orders += 1.0;
                    mistaken +=
                        f64::from(u8::from(order.lines.iter().any(|line| line.item > 100_000)));
                    lines += order.lines.len() as f64;
                    far += order.lines.iter().filter(|line| line.from != 3).count() as f64;
                }
                Input::Payment(payment) => {
                    payments += 1.0;
                    strangers += f64::from(u8::from(payment.of_warehouse != 3));
                    by_name += f64::from(u8::from(matches!(payment.customer, Customer::Name(_))));
                }
                _ => {}
            }
        }
        assert!((0.006..0.014).contains(&(mistaken / orders)), "{}", mistaken / orders);
        assert!((0.008..0.012).contains(&(far / lines)), "{}", far / lines);
        assert!((0.14..0.16).contains(&(strangers / payments)), "{}", strangers / payments);
        assert!((0.58..0.62).contains(&(by_name / payments)), "{}", by_name / payments);
    }

    #[test]
    fn people_think_only_if_they_are_asked_to() {
        let mut plan = Plan::new(&settings(1), 1, 0);
        let input = plan.draw();
        assert_eq!(plan.pace(&input), None);
        let mut plan = Plan::new(&Settings { think: true, ..settings(1) }, 1, 0);
        let delivery = Input::Delivery { warehouse: 1, carrier: 1 };
        let mut sum = 0.0;
        for _ in 0..4000 {
            let (keying, think) = plan.pace(&delivery).unwrap();
            assert_eq!(keying, Duration::from_secs(2));
            sum += think.as_secs_f64();
        }
        assert!((4.5..5.5).contains(&(sum / 4000.0)), "{}", sum / 4000.0);
    }
}
