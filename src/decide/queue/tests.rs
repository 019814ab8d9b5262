use super::*;
use crate::decide::Work;
use crate::facts::Prefix;
use crate::units::{Length, ModelName};

fn ask(model: &str) -> Ask {
    Ask {
        model: Some(ModelName::new(model)),
        only: None,
        zones: None,
        from: None,
        path: None,
        work: Work::Embed,
        prompt: Length::Tokens(1.0),
        fills: None,
        prefix: Prefix::default(),
        max_tokens: None,
        deadline: None,
        streamed: false,
        claim: Claim::default(),
    }
}

fn waiter(ask: Ask, tried: &[WorkerId], since: f64) -> Waiter {
    Waiter {
        ask,
        tried: tried.to_vec(),
        barred: Vec::new(),
        since: Seconds(since),
    }
}

/// Of this class and tenant, with a body of 10 bytes.
fn of(class: u8, tenant: u32) -> Ask {
    let claim = Claim {
        class,
        tenant,
        bytes: 10,
    };
    Ask { claim, ..ask("m") }
}

fn join(line: &mut WaitingLine, ask: Ask, since: f64) -> Ticket {
    line.join(waiter(ask, &[], since)).unwrap()
}

/// Everybody in the order of service, each of whom costs a second.
fn served(line: &mut WaitingLine, now: f64) -> Vec<Ticket> {
    let mut order = Vec::new();
    while let Some(turn) = line.heads(Seconds(now)).pop_first() {
        let claim = line.get(turn.ticket).unwrap().claim();
        line.leave(turn.ticket, Seconds(now));
        line.charge(claim, Seconds(1.0), Seconds(now));
        assert_eq!(line.check(), Ok(()));
        order.push(turn.ticket);
    }
    order
}

#[test]
fn each_lane_has_one_head_and_heads_stand_in_order_of_arrival() {
    let mut line = WaitingLine::default();
    let one = [WorkerId(1)];
    let only = |model| Ask {
        only: Some(one.into()),
        ..ask(model)
    };
    let first = join(&mut line, ask("z"), 1.0);
    let second = join(&mut line, ask("a"), 1.0);
    let third = join(&mut line, ask("z"), 1.0);
    let fourth = line.join(waiter(ask("z"), &one, 1.0)).unwrap();
    let fifth = join(&mut line, only("z"), 1.0);
    let heads = |line: &WaitingLine| -> Vec<_> {
        let heads = line.heads(Seconds(2.0));
        heads.into_iter().map(|turn| turn.ticket).collect()
    };
    assert_eq!(heads(&line), [first, second, fourth, fifth]);
    let mut leave = |ticket| line.leave(ticket, Seconds(2.0)).map(|turn| turn.ticket);
    assert_eq!(leave(first), Some(third));
    assert_eq!(leave(first), None);
    assert_eq!(leave(second), None);
    assert_eq!(heads(&line), [third, fourth, fifth]);
    assert_eq!(line.check(), Ok(()));
}

#[test]
fn a_higher_class_goes_first_and_who_waited_long_before_all() {
    let mut line = WaitingLine::default();
    let low = [1.0, 50.0].map(|since| join(&mut line, of(2, 0), since));
    let high = [50.0, 51.0].map(|since| join(&mut line, of(0, 0), since));
    let middle = join(&mut line, of(1, 0), 50.0);
    let order = served(&mut line, 61.0);
    assert_eq!(order, [low[0], high[0], high[1], middle, low[1]]);
}

#[test]
fn tenants_of_a_class_take_turns_by_what_they_had() {
    let mut line = WaitingLine::default();
    let many: Vec<_> = (0..4).map(|_| join(&mut line, of(0, 1), 1.0)).collect();
    let few: Vec<_> = (0..2).map(|_| join(&mut line, of(0, 2), 2.0)).collect();
    let order = served(&mut line, 3.0);
    assert_eq!(order, [many[0], few[0], many[1], few[1], many[2], many[3]]);
}

#[test]
fn a_tenant_that_is_alone_elsewhere_puts_no_newcomer_behind() {
    let mut line = WaitingLine::default();
    let claim = |tenant| of(0, tenant).claim;
    line.charge(claim(3), Seconds(1_000.0), Seconds(1.0));
    let flood: Vec<_> = (0..3).map(|_| join(&mut line, of(0, 1), 1.0)).collect();
    line.charge(claim(1), Seconds(20.0), Seconds(1.0));
    let newcomer = join(&mut line, of(0, 2), 2.0);
    assert_eq!(served(&mut line, 3.0)[..2], [newcomer, flood[0]]);
}

#[test]
fn of_one_tenant_whose_client_leaves_first_goes_first() {
    let mut line = WaitingLine::default();
    let mut due = |since: f64, span: Option<f64>| {
        let deadline = span.map(|span| Seconds(since + span));
        join(
            &mut line,
            Ask {
                deadline,
                ..of(0, 1)
            },
            since,
        )
    };
    let (patient, late, soon) = (due(1.0, None), due(1.0, Some(9.0)), due(2.0, Some(5.0)));
    assert_eq!(served(&mut line, 3.0), [soon, late, patient]);
}

#[test]
fn the_line_is_bounded_in_entries_and_in_bytes() {
    let rules = LineRules {
        entries: 3,
        bytes: 25,
        ..LineRules::default()
    };
    let mut line = WaitingLine::new(rules);
    let first = join(&mut line, of(0, 0), 1.0);
    join(&mut line, of(0, 0), 1.0);
    let third = || waiter(of(0, 0), &[], 1.0);
    assert_eq!(line.join(third()), Err(LineFull), "of bytes");
    line.leave(first, Seconds(1.0));
    line.join(third()).unwrap();
    let empty = || waiter(ask("m"), &[], 1.0);
    line.join(empty()).unwrap();
    assert_eq!(line.join(empty()), Err(LineFull), "of entries");
    assert_eq!((line.check(), line.len()), (Ok(()), 3));
}

/// A line that holds three of ten bytes each.
fn of_three() -> WaitingLine {
    WaitingLine::new(LineRules {
        entries: 3,
        bytes: 30,
        ..LineRules::default()
    })
}

#[test]
fn a_full_line_takes_a_higher_class_for_the_newest_of_the_lowest() {
    let mut line = of_three();
    let [old, new] = [1.0, 2.0].map(|since| join(&mut line, of(2, 0), since));
    let middle = join(&mut line, of(1, 0), 3.0);
    assert_eq!(line.join(waiter(of(2, 1), &[], 4.0)), Err(LineFull));
    assert_eq!(line.displaced(), []);
    join(&mut line, of(1, 0), 4.0);
    assert_eq!(line.displaced(), [new]);
    join(&mut line, of(0, 0), 5.0);
    assert_eq!(line.displaced(), [old]);
    assert_eq!(line.join(waiter(of(1, 0), &[], 6.0)), Err(LineFull));
    assert!(line.get(middle).is_some());
    assert_eq!((line.check(), line.len()), (Ok(()), 3));
}

#[test]
fn nobody_leaves_a_full_line_when_that_would_not_make_enough_room() {
    let heavy = |class, bytes| {
        let claim = Claim {
            bytes,
            ..of(class, 0).claim
        };
        waiter(Ask { claim, ..ask("m") }, &[], 2.0)
    };
    let mut line = of_three();
    let low = [1.0, 1.5].map(|since| join(&mut line, of(2, 0), since));
    let high = join(&mut line, of(0, 0), 1.0);
    assert_eq!(line.join(heavy(0, 21)), Err(LineFull));
    assert_eq!(line.displaced(), []);
    let heavy = line.join(heavy(0, 20)).unwrap();
    assert_eq!(line.displaced(), [low[1], low[0]]);
    assert_eq!(served(&mut line, 3.0), [high, heavy]);
}

#[test]
fn a_ticket_in_no_lane_and_bytes_that_are_not_there_are_noticed() {
    let mut line = WaitingLine::default();
    join(&mut line, ask("a"), 1.0);
    line.waiters.add(waiter(ask("b"), &[], 1.0));
    line.waiters.remove(Ticket::FIRST);
    assert!(line.check().is_err());
    line.lanes.clear();
    assert!(line.check().is_err());
    let mut line = WaitingLine::default();
    join(&mut line, of(0, 0), 1.0);
    line.bytes += 1;
    assert!(line.check().is_err());
}

fn newest_first(age_up: f64) -> LineRules {
    LineRules {
        age_up: Seconds(age_up),
        newest_first: [Some(Seconds(5.0)); MOST_CLASSES],
        ..LineRules::default()
    }
}

#[test]
fn once_the_eldest_has_waited_long_the_newest_go_first_and_deadlines_before_them() {
    let mut line = WaitingLine::new(newest_first(1e9));
    let hurried = |leaves: f64| Ask {
        deadline: Some(Seconds(leaves)),
        ..of(0, 1)
    };
    let eldest = join(&mut line, of(0, 1), 1.0);
    let newest = join(&mut line, of(0, 1), 2.0);
    let [late, soon] = [90.0, 80.0].map(|leaves| join(&mut line, hurried(leaves), 2.0));
    let other = join(&mut line, of(0, 2), 4.0);
    let first = |line: &WaitingLine, now| line.heads(Seconds(now)).pop_first().unwrap().ticket;
    line.charge(of(0, 2).claim, Seconds(0.1), Seconds(1.0));
    assert_eq!(first(&line, 5.9), soon);
    assert_eq!(
        line.position(newest, Seconds(5.9)),
        Some(5),
        "the other tenant is before it"
    );
    assert_eq!(line.position(newest, Seconds(6.0)), Some(4));
    assert_eq!(line.position(eldest, Seconds(6.0)), Some(5));
    assert_eq!(line.position(other, Seconds(6.0)), Some(2));
    let order = served(&mut line, 6.0);
    assert_eq!(order, [soon, other, late, newest, eldest]);
}

/// Everybody in the order in which places are given to them at this moment.
fn places(line: &mut WaitingLine, now: f64) -> Vec<Ticket> {
    let now = Seconds(now);
    let mut order = Vec::new();
    while let Some(turn) = line.heads(now).pop_first() {
        let group = Group::of(&line.get(turn.ticket).unwrap().ask);
        line.served(turn, &group, now);
        line.leave(turn.ticket, now);
        order.push(turn.ticket);
    }
    order
}

#[test]
fn an_old_class_in_a_standing_line_gets_one_place_in_four() {
    let mut line = WaitingLine::new(newest_first(10.0));
    let low: Vec<_> = (0..3).map(|_| join(&mut line, of(2, 0), 1.0)).collect();
    let high: Vec<_> = (0..6).map(|_| join(&mut line, of(0, 0), 19.0)).collect();
    let expected = [
        low[2], high[0], high[1], high[2], low[1], high[3], high[4], high[5], low[0],
    ];
    assert_eq!(places(&mut line, 20.0), expected);
}

#[test]
fn an_old_class_in_a_calm_line_gets_no_more_than_that() {
    let rules = LineRules {
        newest_first: [None; MOST_CLASSES],
        ..newest_first(10.0)
    };
    let mut line = WaitingLine::new(rules);
    let low: Vec<_> = (0..2).map(|_| join(&mut line, of(2, 0), 1.0)).collect();
    let high: Vec<_> = (0..4).map(|_| join(&mut line, of(0, 0), 19.0)).collect();
    let expected = [low[0], high[0], high[1], high[2], low[1], high[3]];
    assert_eq!(places(&mut line, 20.0), expected);
}

/// Who asks for something else, and waits for a worker that is down, says nothing of how fast the others move.
#[test]
fn each_group_has_a_pace_of_its_own() {
    let mut line = WaitingLine::new(newest_first(1e9));
    join(&mut line, ask("down"), 0.0);
    for second in 0..60 {
        let now = 60.0 + f64::from(second);
        let ticket = join(&mut line, of(0, 0), now);
        let turn = line.turn_beside(ticket, Seconds(now + 0.1)).unwrap();
        let group = Group::of(&line.get(ticket).unwrap().ask);
        line.served(turn, &group, Seconds(now + 0.1));
        line.leave(ticket, Seconds(now + 0.1));
    }
    let last = join(&mut line, of(0, 0), 120.0);
    let wait = line.wait_of(last, Seconds(120.0)).unwrap();
    assert!(wait.takes.0 < 0.2, "{wait:?}");
}

#[test]
fn the_line_is_shown_by_class() {
    let mut line = WaitingLine::new(newest_first(1e9));
    join(&mut line, of(2, 0), 1.0);
    let first = join(&mut line, of(0, 0), 3.0);
    let view = line.view(Seconds(7.0));
    assert_eq!((view.entries, view.bytes, view.pace), (2, 20, None));
    let shown = |class| {
        let ClassView {
            depth,
            oldest,
            overloaded,
        } = view.classes[&class];
        (depth, oldest.0, overloaded)
    };
    assert_eq!((shown(0), shown(2)), ((1, 4.0, false), (1, 6.0, true)));
    assert_eq!(line.first(1), [first]);
}

#[test]
fn a_bound_that_is_lowered_keeps_who_waits_and_lets_nobody_join_until_there_is_room() {
    let mut line = WaitingLine::new(LineRules {
        bytes: 50,
        ..LineRules::default()
    });
    let waiting: Vec<_> = (0..5).map(|_| join(&mut line, of(0, 0), 0.0)).collect();
    line.replan(LineRules {
        bytes: 20,
        ..LineRules::default()
    });
    assert_eq!(line.check(), Ok(()));
    let newcomer = || waiter(of(0, 0), &[], 1.0);
    for left in (1..5).rev() {
        assert_eq!(line.join(newcomer()), Err(LineFull), "{left} have to leave");
        line.leave(waiting[left], Seconds(1.0));
        assert_eq!(line.check(), Ok(()));
    }
    assert!(line.join(newcomer()).is_ok());
    assert_eq!(line.check(), Ok(()));
    assert_eq!(line.join(newcomer()), Err(LineFull));
}
