"""What people write around a number: a currency, a percent sign, a unit, and what sets its thousands apart.

What stands around is a matter of the column: the same in all cells that have something, or in all cells a unit of one
family (5 kg, 300 g), which are then read as one of them. Letters glued to the front make a code (T12), unless they are
a currency; so do zeros at the front (007A).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

MARKS = "'’ \u00a0\u202f\u2009"  # between thousands, wherever the groups of three are right
CURRENCIES = frozenset(
    "AED ARS AUD BGN BRL CAD CHF CLP CNY CZK DKK EGP EUR GBP HKD HUF IDR ILS INR ISK JPY KRW KWD MXN MYR NGN NOK NZD "
    "PHP PLN RMB RON RUB SAR SEK SGD THB TRY TWD UAH USD VND ZAR "
    "Eur Euro euro eur Kč kč zł kr Kr kr. Ft Fr Fr. SFr. Rs Rs. Rp лв руб руб.".split()
)
# Each unit and how much of the first it is. None is in two families: m are never minutes, and a month has no length.
FAMILIES = {
    family: {unit: float(size) for unit, size in zip(sizes.split()[::2], sizes.split()[1::2], strict=True)}
    for family, sizes in {
        "mass": "kg 1 g 1e-3 mg 1e-6 µg 1e-9 t 1e3 lb 0.45359237 oz 0.028349523125",
        "length": "m 1 nm 1e-9 µm 1e-6 mm 1e-3 cm 1e-2 dm 0.1 km 1e3 in 0.0254 ft 0.3048 yd 0.9144 mi 1609.344",
        "time": "s 1 ns 1e-9 µs 1e-6 ms 1e-3 min 60 h 3600 d 86400 week 604800",
        "volume": "l 1 µl 1e-6 ml 1e-3 cl 1e-2 dl 0.1 hl 1e2 m3 1e3 m³ 1e3",
        "data": "B 1 kB 1e3 MB 1e6 GB 1e9 TB 1e12 PB 1e15 KiB 1024 MiB 1048576 GiB 1073741824 TiB 1099511627776",
    }.items()
}
_FAMILY_OF = {unit: family for family, units in FAMILIES.items() for unit in units}
# Words may be in any case and of any number. Of symbols few may: M is a million, NM a nautical mile, Mb are bits.
_WORDS = {
    word: unit
    for unit, *words in map(
        str.split,
        (
            "kg kilo kilogram kilogramme kg|g gram gramme|mg mg|t ton tonne|lb lb lbs pound|oz oz ounce|m meter metre|"
            "cm cm centimeter centimetre|mm millimeter millimetre|km km kilometer kilometre|in in inch inche|"
            "ft ft foot feet|yd yd yard|mi mi mile|s sec second|min min minute|h hr hrs hour|d day|week week wk wks|"
            "l liter litre|ml ml milliliter millilitre|cl cl|dl dl|B byte"
        ).split("|"),
    )
    for word in words
}
_SYMBOLS = {"L": "l", "mL": "ml", "cL": "cl", "dL": "dl", "MM": "mm", "KB": "kB"}
_SYMBOLS |= {unit.lower(): unit for unit in ("kB", "MB", "GB", "TB", "PB")}
SOME = 0.1  # of the numbers have a unit, or it is none of the column
ENOUGH = 0.8  # of some cells are numbers: all of them may be
ROUGHLY = ("~", "≈")
LIKELY = re.compile("[^0-9]{0,8}[0-9].{0,40}")  # nothing else can be one: known without looking at each in Python
_CELL = re.compile(
    rf"(?P<minus>[-+−])?(?P<before>[^\d.,+−{MARKS}-][^\d,+−-]{{0,5}}?)??[{MARKS}]{{0,2}}(?P<sign>[-+−])?"
    rf"(?P<core>[0-9](?:[0-9.,{MARKS}]*[0-9])?[.,]?|[.,][0-9]+)(?P<power>[eE][+-]?[0-9]+)?"
    rf"(?:[{MARKS}]{{0,2}}(?P<after>[^\d\s.,:;/()'’+−_-][^\d]{{0,14}}[0-9]?))?"
)
_MARK = re.compile(f"[{MARKS}]")
_GROUPED = {
    mark: re.compile(rf"[1-9][0-9]{{0,2}}(?:{re.escape(mark)}[0-9]{{3}})+(?:{point}[0-9]*)?")
    for mark, point in {**dict.fromkeys(MARKS, "[.,]"), ",": r"\.", ".": ","}.items()
}


@dataclass(frozen=True)
class Around:
    """What a column's cells may have beside their digits."""

    before: str = ""
    after: str = ""
    thousands: str = ""  # "," or "." where the column shows that these set thousands apart
    family: str = ""  # of which every cell has a unit: each is read as so much of `after`

    def __bool__(self) -> bool:
        return bool(self.before or self.after or self.thousands or self.family)


NOTHING = Around()


@dataclass(frozen=True)
class _Parts:
    minus: str
    before: str
    core: str
    power: str
    after: str


def _split(text: str) -> _Parts | None:
    """A cell as a number with something around it, perhaps; None: it is none."""
    found = _CELL.fullmatch(text)
    if found is None or (found["minus"] and found["sign"]):
        return None
    before, after = (found["before"] or "").strip(), (found["after"] or "").strip()
    code = (before or after) and re.match("0[0-9]", found["core"])
    if code or (before and before not in ROUGHLY and not is_money(before)):
        return None
    minus = "-" if (found["minus"] or found["sign"] or "") in ("-", "−") else ""
    return _Parts(minus, before, _without_marks(found["core"]), found["power"] or "", after)


def _without_marks(core: str) -> str:
    found = _MARK.search(core)
    return core.replace(found[0], "") if found and _GROUPED[found[0]].fullmatch(core) else core


@cache
def is_money(sign: str) -> bool:
    return sign in CURRENCIES or any(unicodedata.category(letter) == "Sc" for letter in sign)


def _alike(unit: str) -> str:
    """KG is kg, and a day one of the days; but ms are no m."""
    folded = unit.casefold()
    return folded.removesuffix("s") if len(folded) >= 4 else folded


def learn(cells: Mapping[str, int], *, commas: bool) -> Around | None:
    """What most cells of a column that have something around their numbers have; `cells` says how often each is there.
    None: too few are numbers.

    `commas`: where a comma may stand for a decimal point or set thousands apart, it is the point.
    """
    split = [(parts, count) for text, count in cells.items() if (parts := _split(text)) is not None]
    if sum(count for _, count in split) < ENOUGH * sum(cells.values()):
        return None
    before, after = (_usual((getattr(parts, at), count) for parts, count in split) for at in ("before", "after"))
    cores = [parts.core for parts, _ in split]
    if (common := _common_unit(cells, split)) is not None:
        return Around("", common, _thousands(cores, money=False, commas=commas), _FAMILY_OF[common])
    money = is_money(before) or is_money(after)
    return Around(before, after, _thousands(cores, money=money, commas=commas))


def _common_unit(cells: Mapping[str, int], split: list[tuple[_Parts, int]]) -> str | None:
    """What to read several units as, where all that may be a number has one, and all are of one family."""
    if len(split) < sum(any(map(str.isdigit, text)) for text in cells) or any(parts.before for parts, _ in split):
        return None
    seen: Counter[str] = Counter()
    for parts, count in split:
        seen[unit(parts.after) or ""] += count
    if len(seen) < 2 or len({_FAMILY_OF.get(one, "") for one in seen}) > 1:
        return None
    # The order of the rows decides nothing: of equally frequent ones the largest.
    return max(seen, key=lambda one: (seen[one], FAMILIES[_FAMILY_OF[one]][one]))


@cache
def unit(written: str) -> str | None:
    """The unit of a family that is written so, such as KG, kilograms or min.; None: it is none."""
    bare = written.rstrip(".").replace("\u03bc", "µ")  # the letter mu and the sign look alike
    if bare in _FAMILY_OF:
        return bare
    if bare in _SYMBOLS or bare == "Mg":  # tonnes to some, milligrams to others
        return _SYMBOLS.get(bare)
    return _WORDS.get(bare.casefold()) or _WORDS.get(_alike(bare))


def scale(text: str, around: Around) -> float:
    """How many of the column's unit one of this cell's is; nan where it has none of the family."""
    parts = _split(text)
    sizes = FAMILIES[around.family]
    size = None if parts is None or parts.before else sizes.get(unit(parts.after) or "")
    return float("nan") if size is None else size / sizes[around.after]


def _usual(found: Iterable[tuple[str, int]]) -> str:
    """The most frequent, unless it is so rare that it may be a slip."""
    seen: Counter[str] = Counter()
    for sign, count in found:
        seen[sign] += count
    usual = max(filter(None, seen), key=lambda sign: seen[sign], default="")
    return usual if seen[usual] >= SOME * seen.total() else ""


def _thousands(cores: list[str], *, money: bool, commas: bool) -> str:
    """The comma or point that sets thousands apart, where the cells leave no doubt: 1,234.50, or 1,234,567; or money,
    which has no three decimals."""
    for mark, point in ((",", "."), (".", ",")):
        having = [core for core in cores if mark in core]
        if not having or not all(_GROUPED[mark].fullmatch(core) for core in having):
            continue
        if mark == "," and any(point in core or core.count(mark) > 1 for core in having):
            return mark
        # 950 beside 1.234: were these decimals, all would have them.
        beside = len(having) < len(cores) and not any(point in core for core in cores)
        if money and (not commas if mark == "," else beside):
            return mark
    return ""


def bare(text: str, around: Around) -> str | None:
    """The number alone, written with a decimal point or comma at most; None where something else stands around it."""
    parts = _split(text)
    if parts is None or not _fits(parts.before, around.before):
        return None
    if not (unit(parts.after) in FAMILIES[around.family] if around.family else _fits(parts.after, around.after)):
        return None
    core = parts.core
    if around.thousands and _GROUPED[around.thousands].fullmatch(core):
        core = core.replace(around.thousands, "")
    return f"{parts.minus}{core}{parts.power}"


def _fits(sign: str, usual: str) -> bool:
    return not sign or _alike(sign) == _alike(usual)


def measured(text: str) -> bool:
    """Is this surely a number with something around it, and no code? Decimals, thousands, money or percent say so."""
    parts = _split(text)
    if parts is None or not (parts.before or parts.after or any(mark in text for mark in MARKS)):
        return False
    return any(mark in parts.core for mark in ".,") or is_money(parts.before) or parts.after in ("%", "‰", "°C", "°")
