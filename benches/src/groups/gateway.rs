//! Calls through the gateway, against going straight and against other gateways (issues 2 and 3).

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use serde_json::json;

use super::{behind, memory, rates};
use crate::bench::{Bench, CALLERS, Served};
use crate::load::Load;
use crate::mcp::{FOUND, SEARCH, data, search_arguments};
use crate::parts::{
    CHILD_ADDRESSES, CHILD_TOOLS, CHILD_WORD, CHILDREN, IN_PROCESS, InProcess, RELAY, RELAY_LOG,
    RELAY_SERVER, STAGES, Stages,
};
use crate::peers::McpProxy;
use crate::process::{Program, free_address, free_addresses};
use crate::report::{Report, Target};
use crate::rounds::{Figures, compare};

/// How long a part of this program may take.
const PART_LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn run(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    let server = bench.email().await?;
    let children = [("email", server.address)];
    let ours = bench.gateway(&children).await?;

    in_process(bench, report).await?;
    straight(bench, report, &server, &ours, &children).await?;
    python(bench, report, &ours, &children).await?;
    relay(bench, report, &server, &ours, &children).await?;
    mcp_proxy(bench, report, &ours, server.address).await?;
    drop(ours);
    python_server(bench, report).await?;
    listing(bench, report).await?;
    memory::run(bench, report, &children).await
}

async fn straight(
    bench: &Bench,
    report: &mut Report,
    server: &Served,
    ours: &Served,
    children: &[(&str, SocketAddr)],
) -> anyhow::Result<()> {
    let plain = bench.plain_gateway(children).await?;
    let loads = [
        plain.searches("our gateway", CALLERS).await?,
        ours.searches("our gateway with a trajectory file", CALLERS).await?,
        server.searches("our server", CALLERS).await?,
    ];
    let [plain, through, straight] = compare(bench.plan, loads.each_ref()).await?;
    rates(
        report,
        "calls/s through over straight",
        Target::AtLeast(0.4),
        ("through", &plain),
        ("straight", &straight),
    );
    rates(
        report,
        "the same with a trajectory file",
        Target::None,
        ("through", &through),
        ("straight", &straight),
    );

    let stages: Stages = Program::part(STAGES)?.start(bench.folder())?.found(PART_LIMIT).await?;
    let (cost, call) = (stages.record + stages.check, through.cpu() + straight.cpu());
    report.row(
        "role check and trajectory: share of a call's processor time",
        cost / call * 100.0,
        " %",
        Target::AtMost(15.0),
        format!(
            "{:.2} µs for both events and {:.2} µs for the check, of {:.1} µs in the gateway and {:.1} µs in the server",
            stages.record,
            stages.check,
            through.cpu(),
            straight.cpu()
        ),
    );
    Ok(())
}

/// A call on an instance in one process.
async fn in_process(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    let found: InProcess = Program::part(IN_PROCESS)?.start(bench.folder())?.found(PART_LIMIT).await?;
    report.row(
        "a call on an instance in process, median",
        found.median,
        " µs",
        Target::AtMost(15.0),
        format!("p99 {:.1} µs, {:.1} µs of processor", found.p99, found.cpu),
    );
    Ok(())
}

/// Both gateways in front of the same server, by every door.
async fn python(
    bench: &Bench,
    report: &mut Report,
    ours: &Served,
    children: &[(&str, SocketAddr)],
) -> anyhow::Result<()> {
    let theirs = bench.python_gateway(children).await?;
    for (callers, least) in [(1, 15.0), (8, 100.0), (32, 100.0), (128, 100.0)] {
        let pair = [
            ours.searches("our gateway", callers).await?,
            theirs.searches("the Python gateway", callers).await?,
        ];
        against_python(bench, report, &format!("/mcp at {callers}"), &pair, least).await?;
    }
    for (callers, least) in [(1, 12.0), (8, 80.0), (32, 80.0)] {
        let pair = [
            ours.step_searches("our gateway, /step", callers),
            theirs.step_searches("the Python gateway, /step", callers),
        ];
        against_python(bench, report, &format!("/step at {callers}"), &pair, least).await?;
    }
    let read = || vec![proxied(); CALLERS];
    let pair =
        [ours.load("our proxy", read(), FOUND), theirs.load("the Python gateway's proxy", read(), FOUND)];
    against_python(bench, report, &format!("/svc, data/get at {CALLERS}"), &pair, 100.0).await
}

/// A read of the whole state through the proxy.
fn proxied() -> Bytes {
    data("/svc/mcp-email/agentenv", "data/get", &json!({}))
}

async fn against_python(
    bench: &Bench,
    report: &mut Report,
    what: &str,
    [ours, theirs]: &[Load; 2],
    least: f64,
) -> anyhow::Result<()> {
    let [ours, theirs] = compare(bench.plan, [ours, theirs]).await?;
    rates(
        report,
        format!("{what}: calls/s over Python"),
        Target::AtLeast(least),
        ("ours", &ours),
        ("Python", &theirs),
    );
    report.row(
        format!("{what}: processor time, Python over ours"),
        theirs.cpu() / ours.cpu(),
        "×",
        Target::AtLeast(100.0),
        cpu_behind(&ours, &theirs),
    );
    Ok(())
}

fn cpu_behind(ours: &Figures, theirs: &Figures) -> String {
    format!("{:.1} µs and {:.0} µs", ours.cpu(), theirs.cpu())
}

/// What is left for a gateway to win: a relay that only passes calls on and logs them, against ours and the Python one. As
/// many times as the relay beats the Python gateway, so many can no gateway on this stack beat here.
async fn relay(
    bench: &Bench,
    report: &mut Report,
    server: &Served,
    ours: &Served,
    children: &[(&str, SocketAddr)],
) -> anyhow::Result<()> {
    let address = free_address()?;
    let program = Program::part(RELAY)?
        .listening(address)
        .variable(RELAY_SERVER, server.address.to_string())
        .variable(RELAY_LOG, bench.folder().join("relay.log"));
    let relay = bench.start(program, address, "/ready").await?;
    let theirs = bench.python_gateway(children).await?;
    for callers in [1, CALLERS, 32] {
        // It keeps no sessions: its callers have the server's own.
        let same = server.endpoint().calls(callers, SEARCH, &search_arguments()).await?;
        let loads = [
            ours.searches("our gateway", callers).await?,
            relay.load("a bare relay", same, FOUND),
            theirs.searches("the Python gateway", callers).await?,
            server.searches("our server", callers).await?,
        ];
        let [ours, bare, python, straight] = compare(bench.plan, loads.each_ref()).await?;
        let what = format!("/mcp at {callers}");
        rates(
            report,
            format!("{what}: calls/s over a bare relay"),
            Target::None,
            ("ours", &ours),
            ("the relay", &bare),
        );
        report.row(
            format!("{what}: a bare relay's calls/s over Python"),
            bare.rate_over(&python),
            "×",
            Target::None,
            format!("processor time {:.0}×", python.cpu() / bare.cpu()),
        );
        rates(
            report,
            format!("{what}: calls/s through a bare relay over straight"),
            Target::None,
            ("the relay", &bare),
            ("straight", &straight),
        );
    }
    Ok(())
}

async fn mcp_proxy(
    bench: &Bench,
    report: &mut Report,
    ours: &Served,
    server: SocketAddr,
) -> anyhow::Result<()> {
    let what = format!("/mcp at {CALLERS}: calls/s over mcp-proxy");
    let proxy = match bench.mcp_proxy().await {
        Ok(proxy) => proxy,
        Err(error) => {
            report.missing(what, format!("{error:#}"));
            return Ok(());
        }
    };
    let address = free_address()?;
    let program = proxy.gateway(bench.folder(), address, server)?;
    let peer = bench.start(program, address, "/admin/health").await.context("mcp-proxy")?;
    let requests =
        McpProxy::endpoint(address).calls(CALLERS, &McpProxy::tool(SEARCH), &search_arguments()).await?;
    let theirs = peer.load("mcp-proxy", requests, FOUND);
    let ours = ours.searches("our gateway", CALLERS).await?;
    let [ours, theirs] = compare(bench.plan, [&ours, &theirs]).await?;
    rates(report, what, Target::AtLeast(3.0), ("ours", &ours), ("mcp-proxy", &theirs));
    report.row(
        "processor time, mcp-proxy over ours",
        theirs.cpu() / ours.cpu(),
        "×",
        Target::None,
        cpu_behind(&ours, &theirs),
    );
    Ok(())
}

/// In front of a Python server the server is the limit.
async fn python_server(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    let server = bench.python_email().await?;
    let gateway = bench.gateway(&[("email", server.address)]).await?;
    let through = gateway.searches("our gateway before a Python server", CALLERS).await?;
    let straight = server.searches("the Python server", CALLERS).await?;
    let [through, straight] = compare(bench.plan, [&through, &straight]).await?;
    rates(
        report,
        "before a Python server: calls/s through over straight",
        Target::AtLeast(0.95),
        ("through", &through),
        ("straight", &straight),
    );
    Ok(())
}

/// The same 64 tools, of 2 children and of 64.
async fn listing(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    let (few_children, few) = many(bench, 2, 32).await?;
    let (many_children, many) = many(bench, 64, 1).await?;
    let lists = |served: &Served, requests| served.load("tools/list", requests, CHILD_WORD);
    let few_load = lists(&few, few.endpoint().lists(CALLERS).await?);
    let many_load = lists(&many, many.endpoint().lists(CALLERS).await?);
    let [many, few] = compare(bench.plan, [&many_load, &few_load]).await?;
    report.row(
        "tools/list of 64 tools: time with 64 children over 2",
        1.0 / many.rate_over(&few),
        "×",
        Target::AtMost(2.0),
        behind(("64 children", &many), ("2 children", &few)),
    );
    drop((few_children, many_children));
    Ok(())
}

async fn many(bench: &Bench, count: usize, tools: usize) -> anyhow::Result<(Served, Served)> {
    let addresses = free_addresses(count)?;
    let listed: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    let program = Program::part(CHILDREN)?
        .variable(CHILD_ADDRESSES, listed.join(","))
        .variable(CHILD_TOOLS, tools.to_string());
    let children = bench.start(program, addresses[0], "/ready").await?;
    let names: Vec<String> = (0..count).map(|index| format!("c{index}")).collect();
    let named: Vec<(&str, SocketAddr)> = names.iter().map(String::as_str).zip(addresses).collect();
    let gateway = bench.gateway(&named).await?;
    Ok((children, gateway))
}
