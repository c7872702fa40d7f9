"""How does everything look? Stage colours and order, number formats, axis ticks and the style sheet; plain values, no Streamlit.

The palette was scored with simulated colour blindness (Machado 2009): the least CIE76 difference of two stage colours over normal, protan,
deutan and tritan sight is 20.7 (light and dark share them: lighter variants for dark fell to 4.4), that of the status red from any of them 18, that of the engine's colour 20.
Colours stand for families of stages, so colour is never alone: order is fixed and bars are labelled.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

Mode = Literal["light", "dark"]

# In the order in which a request passes them. A stage without a colour of its own shares its family's: `first_token` holds queue and
# prefill unsplit, `generation` a whole call; they do not stand beside their parts in one request.
STAGE_ORDER: Final = (
    "network",
    "gateway",
    "guardrail",
    "retrieval",
    "prompt",
    "tool",
    "queue",
    "kv_transfer",
    "prefill",
    "first_token",
    "decode",
    "generation",
    "post",
    "other",
    "wait_user",
)
_FAMILY: Final = {
    "network": "gateway",
    "gateway": "gateway",
    "guardrail": "guardrail",
    "retrieval": "retrieval",
    "prompt": "prompt",
    "tool": "tool",
    "post": "tool",
    "queue": "queue",
    "kv_transfer": "queue",
    "prefill": "prefill",
    "first_token": "prefill",
    "model": "prefill",
    "decode": "decode",
    "generation": "decode",
    "other": "other",
    "wait_user": "other",
}
_COLOURS: Final = {
    "gateway": "#7F889F",
    "guardrail": "#AC7DD3",
    "retrieval": "#0E549F",
    "prompt": "#157CF5",
    "tool": "#C0955A",
    "queue": "#EC8916",
    "prefill": "#A13164",
    "decode": "#26B890",
    "other": "#C8C8D8",
}
STATUS_RED: Final = {"light": "#D92D20", "dark": "#F3202E"}
# Text on a stage colour: dark ink where white would fall below 4.5:1.
_WHITE_INK: Final = frozenset({"retrieval", "prefill"})


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of one mode; `over` is the status red, used for nothing but "over budget", `engine` draws an engine's indicators and no stage."""

    mode: Mode
    ink: str
    muted: str
    line: str
    surface: str
    background: str
    accent: str
    engine: str
    over: str
    over_surface: str
    heat: tuple[tuple[float, str], ...]

    def stage(self, stage: str) -> str:
        """Return the colour of a stage; an unknown one is drawn as unattributed."""
        return _COLOURS[_FAMILY.get(stage, "other")]

    def on_stage(self, stage: str) -> str:
        """Return the colour of text on a stage's colour."""
        return "#FFFFFF" if _FAMILY.get(stage, "other") in _WHITE_INK else "#0B0E14"


LIGHT: Final = Theme(
    mode="light",
    ink="#161B26",
    muted="#566073",
    line="#DCE0E7",
    surface="#F5F7FA",
    background="#FFFFFF",
    accent="#1D5FB4",
    engine="#4B1E00",
    over=STATUS_RED["light"],
    over_surface="#FDF1F0",
    heat=(
        (0.0, "#FFFFFF"),
        (0.001, "#E3EEFA"),
        (0.25, "#9CC4EC"),
        (0.5, "#5A9BDB"),
        (0.75, "#2468B2"),
        (1.0, "#08306B"),
    ),
)
DARK: Final = Theme(
    mode="dark",
    ink="#F1F4F9",
    muted="#A3ADBD",
    line="#2A313D",
    surface="#171C25",
    background="#0E1117",
    accent="#62A8F5",
    engine="#F4E285",
    over=STATUS_RED["dark"],
    over_surface="#2A1617",
    heat=(
        (0.0, "#0E1117"),
        (0.001, "#14243A"),
        (0.25, "#1E4473"),
        (0.5, "#2F6FB5"),
        (0.75, "#62A8F5"),
        (1.0, "#D6E8FF"),
    ),
)


def theme_of(mode: str | None) -> Theme:
    """Return the theme of a mode; light where the browser has not said."""
    return DARK if mode == "dark" else LIGHT


def in_order(stages: list[str]) -> list[str]:
    """Return stages in the order in which a request passes them, unknown ones last."""
    return sorted(
        stages,
        key=lambda stage: STAGE_ORDER.index(stage) if stage in STAGE_ORDER else len(STAGE_ORDER),
    )


def say_ms(value: float | None) -> str:
    """Return a time with its unit and at most three significant figures: `0.4 ms`, `95 ms`, `2.40 s`, `52.5 s`, `3.2 min`; a dash for none."""
    if value is None:
        return "–"
    sign, size = ("−" if value < 0 else ""), abs(value)
    if size < 0.05:
        return "0 ms"
    if size < 9.95:
        return f"{sign}{size:.1f} ms"
    if size < 999.5:
        return f"{sign}{size:.0f} ms"
    if size < 9_995.0:
        return f"{sign}{size / 1000.0:.2f} s"
    if size < 99_950.0:
        return f"{sign}{size / 1000.0:.1f} s"
    return (
        f"{sign}{size / 1000.0:.0f} s" if size < 599_500.0 else f"{sign}{size / 60_000.0:.1f} min"
    )


def say_tick(value: float) -> str:
    """Return a round time as an axis label: `50 ms`, `1 s`, `2.5 s`, `2 min`."""
    if value < 1_000.0:
        return f"{value:g} ms" if value else "0"
    return f"{value / 1_000.0:g} s" if value < 120_000.0 else f"{value / 60_000.0:g} min"


def say_added(value: float) -> str:
    """Return a difference of times with its sign."""
    text = say_ms(value)
    return text if text.startswith("−") or text == "0 ms" else f"+{text}"


def say_ratio(value: float | None) -> str:
    """Return a ratio as per cent with one decimal, a dash for none."""
    return "–" if value is None else f"{100.0 * value:.1f} %".replace("-", "−")


def say_time(time: datetime, *, date: bool = False) -> str:
    """Return a time of day in UTC, with its date where asked."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC" if date else "%H:%M:%S UTC")


def say_count(n: int, what: str) -> str:
    """Return a number of things: `1 request`, `3,578 requests`."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def say_span(start: datetime | None, end: datetime | None) -> str:
    """Return a window for people: the date once, seconds only where they matter, the zone always."""
    if start is None or end is None:
        return "no window"
    start, end = start.astimezone(UTC), end.astimezone(UTC)
    last = (
        end.strftime("%H:%M:%S")
        if end.date() == start.date()
        else end.strftime("%Y-%m-%d %H:%M:%S")
    )
    return f"{start:%Y-%m-%d %H:%M:%S} to {last} UTC"


def say_age(seconds: float) -> str:
    """Return an age in its largest sensible unit: `12 s`, `4 min`, `3 h`, `2 days`."""
    if seconds < 90:
        return f"{max(seconds, 0.0):.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def say_step(seconds: int) -> str:
    """Return the length of a step, in seconds as long as those are read at a glance: `30 s`, `300 s`, `12 h`."""
    return f"{seconds} s" if seconds < 600 else say_age(seconds)


def say_number(value: float, unit: str) -> str:
    """Return an engine's number with its unit: ratios as per cent, rates and counts with three figures."""
    if unit == "ratio":
        return (
            f"{100.0 * value:.0f} %"
            if value == 0.0 or value >= 0.0995
            else f"{100.0 * value:.1f} %"
        )
    shown = f"{value:,.0f}" if value >= 100.0 or value == int(value) else f"{value:.3g}"
    return shown if unit == "requests" else f"{shown}/s"


def ticks(largest: float) -> list[float]:
    """Return axis ticks from 0 in steps of 1, 2 or 5 times a power of ten, three to six of them; only 0 for nothing."""
    if not largest > 0.0:
        return [0.0]
    power = 10.0
    while power > largest:
        power /= 10.0
    while power * 10.0 <= largest:
        power *= 10.0
    step = next(
        part for part in (power / 5.0, power / 2.0, power, power * 2.0) if largest / part <= 5.0
    )
    return [step * i for i in range(int(largest / step + 1e-9) + 1)]


# One size for numbers that are compared, tabular digits, nothing loaded from anywhere. The page's own rules are prefixed with "ov-".
_CSS: Final = """
.ov-box{border-left:6px solid VAR_LINE;background:VAR_SURFACE;border-radius:6px;padding:16px 20px;margin:2px 0 6px}
.ov-box h1{font-size:1.55rem;line-height:1.25;margin:0 0 6px;padding:0;color:VAR_INK;font-weight:700}
.ov-box.ov-bad{border-left-color:VAR_OVER;background:VAR_ALARM}
.ov-box.ov-bad h1{color:VAR_OVER}
.ov-box p{margin:0 0 8px;font-size:1rem;line-height:1.5}
.ov-box p:last-child{margin-bottom:0}
.ov{color:VAR_INK;font-variant-numeric:tabular-nums;font-size:.92rem;line-height:1.45;overflow-wrap:anywhere}
.ov p,.ov dd,.ov li,.ov small,.ov h2,.ov-box h1{text-wrap:pretty}
.ov h2{font-size:1.02rem;font-weight:650;margin:14px 0 6px;padding:0;color:VAR_INK}
.ov small,.ov .ov-muted{color:VAR_MUTED;font-size:.8rem}
.ov .ov-over{color:VAR_OVER;font-weight:650}
.ov table{border-collapse:collapse;width:100%;border:0}
.ov .ov-scroll{overflow-x:auto}
.ov th{font-weight:500;color:VAR_MUTED;font-size:.8rem;text-align:right;border:0;border-bottom:1px solid VAR_LINE;padding:4px 10px;white-space:nowrap}
.ov table td{border:0;border-bottom:1px solid VAR_LINE;padding:7px 10px;text-align:right;vertical-align:middle}
.ov td small{display:block}
.ov td{overflow-wrap:break-word}
.ov th:first-child,.ov td:first-child{text-align:left}
.ov .ov-n{white-space:nowrap}
.ov .ov-num{font-size:1.05rem;white-space:nowrap}
.ov .ov-big{font-size:2rem;font-weight:700;line-height:1.2}
.ov .ov-predicted{border-bottom:2px dashed VAR_MUTED;padding-bottom:1px}
.ov .ov-chip{display:inline-block;border-radius:10px;padding:0 9px;font-size:.8rem;font-weight:600;line-height:1.5;white-space:nowrap}
.ov .ov-facts{display:grid;grid-template-columns:minmax(64px,max-content) minmax(0,1fr);gap:5px 16px;margin:6px 0 0;padding:0}
.ov .ov-under .ov-facts{padding:0 0 0 26px}
.ov .ov-under .ov-details{margin-left:26px}
.ov dl,.ov dt,.ov dd,.ov td,.ov li{margin:0;padding:0;font-size:inherit}
.ov .ov-facts dt{color:VAR_MUTED;font-weight:400}
.ov .ov-facts dd{margin:0}
.ov .ov-strip{display:grid;grid-template-columns:104px minmax(0,1fr) 84px;gap:10px;align-items:center;margin:5px 0}
.ov .ov-strip.ov-burn{grid-template-columns:118px minmax(0,1fr) 96px;margin:2px 0}
.ov .ov-rest{grid-column:2/-1}
.ov .ov-burn .ov-track,.ov .ov-burn .ov-track span{height:10px}
.ov .ov-bar{display:flex;height:26px}
.ov .ov-bar span{overflow:hidden;white-space:nowrap;text-overflow:ellipsis;font-size:.78rem;font-weight:600;line-height:26px;padding:0 6px;
  box-sizing:border-box;border-right:1px solid VAR_BACK;min-width:2px}
.ov .ov-bar span.ov-thin{padding:0}
.ov .ov-end{text-align:right;white-space:nowrap}
.ov .ov-hero .ov-bar{position:relative;background:VAR_SURFACE}
.ov .ov-hero .ov-bar a{display:block;height:26px;box-sizing:border-box;border-right:1px solid VAR_BACK;min-width:2px;text-decoration:none}
.ov .ov-hero .ov-bar a>span{display:block;border:0;color:inherit}
.ov .ov-hero .ov-end{white-space:normal}
.ov .ov-hero .ov-strip small{display:block;line-height:1.2}
.ov .ov-hero .ov-fixed{border:1.5px dashed VAR_ACCENT;background:repeating-linear-gradient(135deg,transparent 0 4px,VAR_ACCENT 4px 6px)}
.ov .ov-whisker{position:absolute;top:11px;height:4px;box-sizing:border-box;border:solid VAR_INK;border-width:0 2px;
  background:linear-gradient(VAR_INK,VAR_INK) center/100% 2px no-repeat;pointer-events:none}
.ov .ov-course{position:relative;height:168px;margin:4px 84px 0 114px;border-bottom:1px solid VAR_LINE}
.ov .ov-yaxis b{position:absolute;right:calc(100% + 8px);transform:translateY(50%);font-weight:400;font-size:.76rem;color:VAR_MUTED;white-space:nowrap}
.ov .ov-columns{position:absolute;inset:0;display:flex;gap:1px}
.ov .ov-columns>span{flex:1;display:flex;flex-direction:column;justify-content:flex-end;min-width:0;position:relative}
.ov .ov-columns>span:hover{background:VAR_SURFACE}
.ov .ov-columns i{display:block}
.ov .ov-columns em{position:absolute;font-style:normal;pointer-events:none}
.ov .ov-columns em b{position:absolute;font-size:.76rem;font-weight:600;white-space:nowrap;background:VAR_GLASS;padding:0 3px;border-radius:3px}
.ov .ov-limit{left:0;right:0;border-top:1.5px dashed VAR_OVER}
.ov .ov-limit b{left:100%;top:-10px;color:VAR_OVER}
.ov .ov-onset,.ov .ov-change{top:0;bottom:0;border-left:2px solid VAR_INK}
.ov .ov-change{border-left:1.5px dotted VAR_INK}
.ov .ov-onset b{left:2px;top:-2px}
.ov .ov-change b{left:2px;top:15px}
.ov .ov-left b{left:auto!important;right:2px}
.ov .ov-times{display:flex;justify-content:space-between;margin:2px 84px 8px 114px;font-size:.76rem;color:VAR_MUTED}
.ov .ov-legend{display:flex;flex-wrap:wrap;gap:2px 14px;align-items:center;margin:4px 0 0;font-size:.8rem}
.ov .ov-legend i{display:inline-block;width:11px;height:11px;margin-right:5px;vertical-align:-1px}
.ov [data-tip]{position:relative}
.ov [data-tip]:hover::after,.ov [data-tip]:focus-visible::after{content:attr(data-tip);position:absolute;z-index:9;left:0;top:calc(100% + 4px);width:max-content;
  max-width:min(340px,60vw);
  white-space:pre-line;background:VAR_INK;color:VAR_BACK;padding:6px 10px;border-radius:6px;font-size:.8rem;font-weight:400;line-height:1.4;pointer-events:none}
.ov .ov-columns>.ov-late:hover::after,.ov .ov-bar>.ov-late:hover::after,.ov .ov-bar>.ov-late:focus-visible::after{left:auto;right:0}
.ov .ov-command{display:flex;gap:8px;align-items:center;margin:4px 0 0}
.ov .ov-command code{background:VAR_SURFACE;border:1px solid VAR_LINE;border-radius:4px;padding:1px 7px;font-size:.78rem;color:VAR_INK;
  overflow-x:auto;white-space:nowrap;min-width:0}
.ov .ov-copy,.ov .ov-zoom{border:1px solid VAR_LINE;border-radius:4px;background:VAR_BACK;color:VAR_INK;font:inherit;font-size:.78rem;padding:1px 10px;cursor:pointer;flex:none}
.ov pre{background:VAR_SURFACE;border:1px solid VAR_LINE;border-radius:6px;padding:10px 12px;font-size:.82rem;overflow-x:auto;white-space:pre;color:VAR_INK}
.ov .ov-cols{display:grid;grid-template-columns:repeat(auto-fit,minmax(260px,1fr));gap:4px 28px}
.stApp a:focus-visible,.ov summary:focus-visible,.ov button:focus-visible,.ov [tabindex]:focus-visible{outline:2px solid VAR_ACCENT;outline-offset:2px;border-radius:4px}
.ov img{vertical-align:middle;margin-left:6px}
.ov .ov-live{text-align:right;font-size:.78rem;color:VAR_MUTED;margin:0}
.ov .ov-wide{display:grid;grid-template-columns:minmax(0,2.4fr) minmax(240px,1fr);gap:4px 28px}
.ov .ov-card{display:grid;grid-template-columns:minmax(0,1.35fr) minmax(0,1fr);gap:6px 34px}
.ov .ov-grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(136px,1fr));gap:8px 18px;margin:6px 0}
.ov .ov-grid dt{color:VAR_MUTED;font-size:.78rem;font-weight:400}
.ov .ov-track{position:relative;height:18px;background:VAR_SURFACE}
.ov .ov-track span{display:block;height:18px;box-sizing:border-box}
.ov .ov-now{background:VAR_MUTED}
.ov .ov-then{border:1.5px dashed VAR_ACCENT;background:repeating-linear-gradient(135deg,transparent 0 4px,VAR_ACCENT 4px 6px)}
.ov .ov-tick{position:absolute;top:-3px;bottom:-3px;width:0;border-left:2px solid VAR_INK;margin-left:-1px}
.ov .ov-share{display:grid;grid-template-columns:minmax(60px,1fr) 132px;gap:8px;align-items:center;margin:2px 0}
.ov .ov-share .ov-track,.ov .ov-share .ov-track span{height:10px}
.ov .ov-these{background:VAR_ACCENT}
.ov .ov-others{background:VAR_LINE}
.ov .ov-spreads{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(330px,100%),1fr));gap:12px 34px;margin:4px 0}
.ov .ov-spreads h3{font-size:.9rem;font-weight:600;margin:0 0 4px;padding:0;color:VAR_INK}
.ov .ov-spreads h3 small{font-weight:400}
.ov .ov-spreads a,.ov .ov-count a,.ov small>a,.ov .ov-facts a{color:VAR_ACCENT}
.ov .ov-value{display:grid;grid-template-columns:minmax(0,1.25fr) minmax(60px,1fr) 46px 18px;gap:7px;align-items:center;min-height:24px}
.ov .ov-value>a:first-child,.ov .ov-value>span:first-child{overflow:hidden;white-space:nowrap;text-overflow:ellipsis;font-size:.84rem}
.ov .ov-value small{text-align:right}
.ov .ov-pair i{display:block;height:7px;min-width:1px}
.ov a.ov-out{text-align:center;text-decoration:none;border:1px solid VAR_LINE;border-radius:4px;line-height:16px;color:VAR_MUTED}
.ov .ov-histogram{display:flex;height:66px;gap:3px;border-bottom:1px solid VAR_LINE}
.ov .ov-histogram>a{flex:1;display:flex;gap:1px;align-items:flex-end;text-decoration:none;min-width:0}
.ov .ov-histogram>a:hover{background:VAR_SURFACE}
.ov .ov-histogram i{flex:1;display:block;min-height:1px}
.ov .ov-histogram>.ov-late:hover::after,.ov .ov-histogram>.ov-late:focus-visible::after{left:auto;right:0}
.ov .ov-ends small{display:flex;justify-content:space-between}
.ov .ov-condition{display:inline-block;border:1px solid VAR_LINE;border-radius:12px;padding:1px 10px;margin:0 6px 4px 0;text-decoration:none;color:VAR_INK}
.ov .ov-count{display:block;margin:-3px 0 5px 114px}
.ov h3{font-size:.92rem;font-weight:600;margin:10px 0 4px;padding:0;color:VAR_INK}
.ov .ov-plot{position:relative;height:128px;margin:4px 12px 0 66px;border-bottom:1px solid VAR_LINE}
.ov .ov-plot img{position:absolute;inset:0;width:100%;height:100%;margin:0;pointer-events:none}
.ov .ov-plot .ov-limit b{left:auto;right:0;top:2px}
.ov .ov-clock{display:flex;justify-content:space-between;margin:2px 12px 4px 66px;font-size:.76rem;color:VAR_MUTED}
.ov .ov-named{grid-template-columns:minmax(0,1fr) 42% minmax(96px,max-content)}
.ov .ov-histogram>span{flex:1;display:flex;gap:1px;align-items:flex-end;min-width:0}
.ov .ov-histogram>span:hover{background:VAR_SURFACE}
.ov .ov-tall{height:128px}
.ov .ov-plain{margin:8px 0 0}
.ov .ov-plain>div{display:flex;justify-content:space-between;gap:14px;border-bottom:1px solid VAR_LINE;padding:3px 0}
.ov .ov-plain dt{color:VAR_MUTED}.ov .ov-plain dd{text-align:right;white-space:nowrap}
.ov .ov-way{display:flex;flex-wrap:wrap;gap:6px 8px;align-items:center;list-style:none;margin:4px 0;padding:0}
.ov .ov-node{border:1.5px solid VAR_INK;padding:5px 12px;border-radius:4px}
.ov .ov-node b{display:block;font-weight:600}
.ov .ov-state{border-radius:18px}.ov .ov-stage{background:VAR_SURFACE;border-width:1.5px 5px}.ov .ov-unseen{border-style:dashed;border-color:VAR_MUTED}
.ov .ov-arrow{color:VAR_MUTED}
.ov ul{margin:4px 0 12px;padding-left:20px}
.ov .ov-prose{margin-top:14px}
.ov .ov-prose td{text-align:left}
.ov .ov-prose th{text-align:left}
.ov .ov-prose td:nth-child(2){white-space:nowrap}
.ov .ov-details{margin:10px 0}
.ov .ov-details summary{cursor:pointer;color:VAR_MUTED}
.ov .ov-trace{margin:4px 0;border-top:1px solid VAR_LINE}
.ov .ov-rows:focus-visible{outline-offset:-2px}.ov .ov-rows{max-height:640px;overflow-y:auto;border-bottom:1px solid VAR_LINE}
.ov .ov-row{display:grid;grid-template-columns:minmax(112px,24%) 1fr;align-items:center;height:25px}
.ov .ov-name{overflow:hidden;white-space:nowrap;text-overflow:ellipsis;padding-right:8px;font-size:.84rem}
.ov .ov-lane{position:relative;height:25px;overflow:hidden}
/* --l and --w are per cent of the request, --at where what is looked at begins, --zoom how much larger it is (page.js). */
.ov .ov-lane i,.ov .ov-lane b,.ov .ov-lane em{left:calc((var(--l) - var(--at,0))*var(--zoom,1)*1%)}
.ov .ov-lane i{position:absolute;display:block;box-sizing:border-box;min-width:2px;width:calc(var(--w)*var(--zoom,1)*1%)}
.ov .ov-lane .ov-token,.ov .ov-axis .ov-lane i{width:auto}
.ov .ov-lane em{margin-left:5px}
.ov .ov-lane em.ov-before{margin:0;transform:translateX(calc(-100% - 5px))}
.ov .ov-lane em.ov-inside{left:auto;right:4px;margin:0}
.ov .ov-axis .ov-lane b.ov-left{transform:translateX(-100%)}
.ov .ov-line{position:relative}
.ov .ov-line[hidden]{display:none}
.ov .ov-dim{opacity:.3}.ov .ov-hit .ov-name{background:VAR_INK;color:VAR_BACK}
.ov .ov-fold{position:absolute;z-index:1;top:0;width:24px;height:25px;border:0;padding:0;background:none;color:VAR_MUTED;font-size:.9rem;cursor:pointer}
.ov .ov-rows .ov-name{text-indent:18px}
.ov .ov-tools{display:flex;flex-wrap:wrap;gap:6px;align-items:center;padding:6px 0}
.ov .ov-tools input,.ov .ov-tools button,.ov .ov-when input,.ov .ov-when button{border:1px solid VAR_LINE;border-radius:4px;background:VAR_BACK;color:VAR_INK;
  font:inherit;font-size:.84rem;padding:2px 10px;min-height:28px;color-scheme:inherit}
.ov .ov-tools button,.ov .ov-when button{cursor:pointer}.ov .ov-tools button[aria-pressed=true]{background:VAR_INK;color:VAR_BACK}
.ov .ov-tools input:focus-visible,.ov .ov-when input:focus-visible,.ov .ov-when summary:focus-visible{outline:2px solid VAR_ACCENT;outline-offset:1px}
.ov .ov-lane .ov-off{top:6px;height:13px;opacity:.35}
.ov .ov-lane .ov-ink{top:6px;height:15px;border-bottom:3px solid VAR_INK}
.ov .ov-lane .ov-gap{top:8px;height:9px;border:1px dashed VAR_MUTED;background:repeating-linear-gradient(135deg,transparent 0 3px,VAR_MUTED 3px 4px)}
.ov .ov-lane .ov-token{top:0;bottom:0;width:0;min-width:0;border-left:1.5px dashed VAR_INK}
.ov .ov-lane em{position:absolute;top:3px;font-style:normal;font-size:.78rem;white-space:nowrap;background:VAR_GLASS;padding:0 3px;border-radius:3px}
.ov .ov-lane .ov-ghost{top:5px;height:15px;border:1.5px dashed;opacity:.9}
.ov summary.ov-row{cursor:pointer;list-style:none}
.ov .ov-span[open]{background:VAR_SURFACE}
.ov .ov-span p{margin:0;padding:2px 12px 10px;color:VAR_MUTED;font-size:.84rem}.ov .ov-span p strong{color:VAR_INK;font-weight:500}
.ov .ov-list{max-height:330px;overflow:auto;position:relative;border-bottom:1px solid VAR_LINE}
.ov .ov-list thead th{position:sticky;top:0;z-index:2;background:VAR_BACK;padding:0}
.ov .ov-list th button{border:0;background:none;color:inherit;font:inherit;padding:5px 10px;cursor:pointer;white-space:nowrap}
.ov .ov-list th[aria-sort=descending] button::after{content:" ↓"}.ov .ov-list th[aria-sort=ascending] button::after{content:" ↑"}
.ov .ov-list tbody tr{cursor:pointer}.ov .ov-list tbody tr:hover{background:VAR_SURFACE}
.ov .ov-list tbody tr[aria-current]{background:VAR_SURFACE;box-shadow:inset 4px 0 VAR_ACCENT}
.ov .ov-list table td{padding:4px 10px;white-space:nowrap}
.ov .ov-list a{color:VAR_ACCENT;text-decoration:none}
.ov .ov-list td.ov-level{background:linear-gradient(VAR_ACCENT,VAR_ACCENT) 0 100%/var(--w,0) 4px no-repeat}
.ov .ov-list td.ov-mini{min-width:120px}.ov .ov-list .ov-bar{height:14px}.ov .ov-list .ov-bar i{display:block;height:14px}
.ov .ov-axis{height:34px}
.ov .ov-axis .ov-lane{height:34px;font-size:.76rem}
.ov .ov-axis .ov-lane i{top:17px;font-style:normal;color:VAR_MUTED;border-left:1px solid VAR_LINE;padding-left:4px;white-space:nowrap}
.ov .ov-axis .ov-lane b{position:absolute;top:0;white-space:nowrap;padding-left:4px;border-left:1.5px dashed VAR_INK;font-weight:600}
.ov .ov-axis .ov-lane b.ov-left{padding:0 4px 0 0;border-left:0;border-right:1.5px dashed VAR_INK}
/* Streamlit's own export writes names as they came, and a spreadsheet would run those that begin like a formula (downloads.py). */
[data-testid="stElementToolbarButton"]:has([aria-label^="Download as CSV"]){display:none}
.ov .ov-drag{cursor:crosshair;touch-action:pan-y}.ov .ov-drag .ov-columns>span[data-box]{cursor:pointer}
.ov .ov-brush{position:absolute;top:0;bottom:0;background:VAR_ACCENT;opacity:.25;pointer-events:none}
#ov-late{position:fixed;z-index:999;left:0;right:0;box-sizing:border-box;font:1rem/1.5 "Source Sans",sans-serif;color:VAR_INK}
#ov-late.ov-line{bottom:16px;width:max-content;max-width:min(92vw,900px);margin:0 auto;padding:6px 18px;border:1px solid VAR_LINE;border-radius:16px;background:VAR_SURFACE}
#ov-late.ov-empty{bottom:0;font-weight:700;font-size:1.15rem;max-width:1700px;margin:0 auto;padding:16px 5rem;background:VAR_BACK}
#ov-late.ov-empty::after{content:"";display:block;height:60vh;margin-top:16px;border-radius:6px;
  background:repeating-linear-gradient(VAR_SURFACE 0 160px,VAR_BACK 160px 176px)}
/* Old numbers stay as they are until the new ones are there. */
.stElementContainer[data-stale="true"],.stFullScreenFrame[data-stale="true"]{opacity:1!important;transition:none!important}
/* The bar begins with the name, where the page's text begins; Streamlit has it at the window's edge. */
.stAppToolbar{max-width:1700px;margin:0 auto;padding-inline:5rem;gap:14px}
.stAppToolbar::before{content:"Overrun";flex:none;font:700 1.05rem "Source Sans",sans-serif;color:VAR_INK}
@media (max-width:768px){.stAppToolbar{padding-inline:1rem}}
.stMainBlockContainer{padding-top:4.2rem;padding-bottom:2rem;max-width:1700px}
/* One row where there is room, pairs on a phone. */
.st-key-show_filters{display:none}
@media (min-width:1240px){.st-key-filters{flex-wrap:nowrap}.st-key-filters>*{max-width:272px}}
.st-key-filters .st-key-from,.st-key-filters .st-key-to{display:none}
.ov .ov-when{position:relative}
.ov .ov-when summary{list-style:none;cursor:pointer;border:1px solid VAR_LINE;border-radius:8px;background:VAR_SURFACE;height:40px;box-sizing:border-box;
  padding:8px 12px;white-space:nowrap;font-variant-numeric:tabular-nums;overflow:hidden;text-overflow:ellipsis}
.ov .ov-when summary::after{content:" ▾";color:VAR_MUTED}
.ov .ov-panel{position:absolute;z-index:1000;top:44px;left:0;display:grid;gap:8px;width:max-content;max-width:88vw;padding:14px 16px;border:1px solid VAR_LINE;
  border-radius:8px;background:VAR_BACK;box-shadow:0 6px 24px #0003}
.ov .ov-panel>label{display:grid;gap:2px;font-size:.8rem;color:VAR_MUTED}
.ov .ov-zones{display:flex;gap:16px}.ov .ov-zones[hidden]{display:none}.ov .ov-zones input{min-height:0;margin-right:6px}
.ov .ov-other{min-height:1.4em;max-width:300px}.ov .ov-show:disabled{opacity:.5;cursor:default}
@media (max-width:900px){.ov .ov-wide,.ov .ov-card{grid-template-columns:minmax(0,1fr)}}
@media (max-width:640px){.st-key-filters{display:grid;grid-template-columns:repeat(2,minmax(0,1fr))}.st-key-filters>*{width:auto}
.st-key-filters>.st-key-since,.st-key-filters>.st-key-show_filters{grid-column:1/-1}.st-key-show_filters{display:block}
.st-key-filters:not(:has(.st-key-show_filters input:checked))>:not(.st-key-show_filters,.st-key-since){display:none}
.ov-box{padding:12px 14px}.ov-box h1{font-size:1.25rem}
.ov .ov-strip{grid-template-columns:64px minmax(0,1fr) 64px;gap:6px}
.ov table td,.ov th{padding:6px 5px}.ov td{overflow-wrap:anywhere}.ov .ov-scroll:not(.ov-cards) td:first-child{min-width:7.2em}
.ov .ov-cards thead{position:absolute;clip-path:inset(50%);width:1px;height:1px;overflow:hidden}
.ov .ov-cards tr{display:grid;grid-template-columns:repeat(4,minmax(0,1fr));gap:4px 10px;padding:8px 0;border-bottom:1px solid VAR_LINE}
.ov .ov-cards td,.ov .ov-cards table td{display:block;border:0;padding:0;text-align:left}
.ov .ov-cards td:first-child,.ov .ov-cards td:has(img,.ov-share,.ov-long){grid-column:1/-1}.ov .ov-cards td:empty{display:none}
.ov .ov-cards td .ov-n{white-space:normal}
.ov .ov-cards td:not(:first-child)::before{content:attr(data-of);display:block;color:VAR_MUTED;font-size:.78rem}.ov .ov-cards img{margin-left:0}
.ov .ov-keys{display:none}
.ov .ov-list table td,.ov .ov-list th button{padding:5px 4px;white-space:normal}.ov .ov-list td:first-child{white-space:nowrap}
.ov .ov-under .ov-facts{padding-left:14px}.ov .ov-hide{display:none}.ov .ov-facts{grid-template-columns:minmax(0,1fr)}
.ov .ov-facts dt:not(:first-child){margin-top:6px}.ov .ov-course{margin:4px 0 0 52px;height:132px}.ov .ov-times{margin:2px 0 8px 52px}
.ov .ov-limit b{left:auto;right:0;top:-18px}.ov .ov-count{margin-left:70px}
/* On a phone what to do comes before the picture. */
.st-key-story>.stElementContainer:has(.ov-hero){order:1}}
@media (prefers-reduced-motion:reduce){.stApp *,.stApp *::before,.stApp *::after{animation-duration:1ms!important;animation-iteration-count:1!important;
  transition-duration:1ms!important}}
"""


def css() -> str:
    """Return the style sheet of both modes: it follows the page when the machine turns dark at dusk, without anything being drawn again."""
    names = {
        "INK": "ink",
        "MUTED": "muted",
        "LINE": "line",
        "SURFACE": "surface",
        "BACK": "background",
        "OVER": "over",
        "ALARM": "over_surface",
        "ACCENT": "accent",
    }
    values = {
        f"VAR_{name}": f"light-dark({getattr(LIGHT, field)},{getattr(DARK, field)})"
        for name, field in names.items()
    }
    values["VAR_GLASS"] = f"light-dark({LIGHT.background}B0,{DARK.background}B0)"
    text = _CSS + "".join(
        f".ov .ov-s-{stage.replace('_', '-')}{{background:{LIGHT.stage(stage)};color:{LIGHT.on_stage(stage)}!important}}\n"
        for stage in STAGE_ORDER
    )
    for name, value in values.items():
        text = text.replace(name, value)
    return text
