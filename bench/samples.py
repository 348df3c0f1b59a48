"""Texts of every kind that counters are judged on: one set to fit the estimate on, another to judge it by.

Natural languages are hand-written sentences (the two sets share none), the rest is generated; both deterministic.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Mapping, Sequence

KINDS = (
    "english",
    "code",
    "json rows",
    "hex",
    "base64",
    "chinese",
    "japanese",
    "korean",
    "emoji",
)

_FIT_SENTENCES = {
    "english": (
        "The rotation runs in the background while the next turn is already being answered.",
        "We decided to keep the old import path because three customers still rely on it.",
        "Could you check whether the nightly build failed again, and if so, open a ticket for it?",
        "Nothing in the report explains why throughput dropped by half after the upgrade.",
        "Unfortunately, the replacement part won't arrive before Thursday, so the repair has to wait.",
        "Her grandmother taught her to bake bread long before she could read a recipe.",
    ),
    "chinese": (
        "这个函数返回一个列表，其中包含所有未完成的任务。",
        "我们昨天讨论了新的发布计划，决定推迟到下个月初。",
        "请检查一下数据库连接是否正常，如果不正常就重新启动服务。",
        "春天来了，公园里的樱花开得非常漂亮，游客络绎不绝。",
        "他从小就喜欢读历史书，尤其对唐朝的诗歌感兴趣。",
        "系統將於今晚十點進行維護，屆時部分功能可能無法使用。",
    ),
    "japanese": (
        "この関数は未完了のタスクの一覧を返します。",
        "昨日の会議で、新しいリリース計画について話し合いました。",
        "データベースの接続が正常かどうか確認してください。",
        "春になると、公園の桜がとても綺麗に咲きます。",
        "彼は子供の頃から歴史の本を読むのが好きでした。",
        "エラーメッセージが表示された場合は、サーバーを再起動してみてください。",
    ),
    "korean": (
        "이 함수는 완료되지 않은 작업의 목록을 반환합니다.",
        "어제 회의에서 새로운 출시 계획에 대해 논의했습니다.",
        "데이터베이스 연결이 정상인지 확인해 주세요.",
        "봄이 되면 공원의 벚꽃이 아주 아름답게 핍니다.",
        "그는 어릴 때부터 역사책 읽는 것을 좋아했습니다.",
        "오류 메시지가 나타나면 서버를 다시 시작해 보십시오.",
    ),
}

_FRESH_SENTENCES = {
    "english": (
        "A quiet harbour town wakes slowly; fishing boats leave before anyone has opened a shop.",
        "If the certificate expires tonight, every mobile client will refuse to connect tomorrow morning.",
        "Please summarise the customer's complaint and propose a refund that follows our policy.",
        "I'd rather rewrite the scheduler from scratch than patch its locking once more.",
        "Photosynthesis converts carbon dioxide and water into glucose, releasing oxygen as a by-product.",
        "The committee postponed its vote, citing irregularities in the preliminary audit.",
    ),
    "chinese": (
        "如果证书今晚过期，明天早上所有手机客户端都会拒绝连接。",
        "小镇的清晨十分安静，渔船在商店开门之前就已经出海。",
        "委员会以初步审计存在违规行为为由推迟了投票。",
        "植物通过光合作用把二氧化碳和水转化为葡萄糖，并释放氧气。",
        "订单编号为三千五百的客户要求退款，请按照公司政策处理。",
        "這家餐廳的牛肉麵遠近馳名，週末總是大排長龍。",
    ),
    "japanese": (
        "証明書の期限が今夜切れると、明日の朝すべての端末が接続を拒否します。",
        "静かな港町では、店が開く前に漁船が出ていきます。",
        "委員会は監査の不備を理由に採決を延期した。",
        "植物は光合成によって二酸化炭素と水からブドウ糖を作り、酸素を放出する。",
        "お客様の苦情を要約し、規定に沿った返金案を提案してください。",
        "スケジューラのロック処理をもう一度直すより、最初から書き直した方が早い。",
    ),
    "korean": (
        "인증서가 오늘 밤 만료되면 내일 아침 모든 단말기가 연결을 거부할 것입니다.",
        "조용한 항구 마을에서는 가게가 문을 열기 전에 어선이 떠납니다.",
        "위원회는 예비 감사의 문제점을 이유로 표결을 연기했다.",
        "식물은 광합성을 통해 이산화탄소와 물을 포도당으로 바꾸고 산소를 내보낸다.",
        "고객의 불만을 요약하고 규정에 맞는 환불 방안을 제안해 주세요.",
        "스케줄러의 잠금 처리를 고치느니 처음부터 다시 작성하는 편이 낫겠다.",
    ),
}

_FIT_EMOJI = "😀😂🥲😍🤔🙄😴🤯👍👎🙏💪🎉🔥✨⭐❤️💔🚀🐛✅❌⚠️📦🧪🔧👩‍💻👨‍👩‍👧🏳️‍🌈🇩🇪🇯🇵👍🏽"
_FRESH_EMOJI = "😎🤗😱🥳😇🤖👻💩🙌👀🧠🫠🦊🐢🌵🌮🍕⚽🎸🚗✈️🏠💡📌🔒🗑️💬🏁👩🏿‍🚀🧑‍🤝‍🧑🇫🇷🇰🇷🤞🏻🫶🩷🪄"

_FIT_WORDS = ("order", "customer", "amount", "total", "status", "region", "warehouse", "shipped", "refund", "invoice")
_FRESH_WORDS = ("sensor", "reading", "voltage", "station", "latitude", "humidity", "operator", "alarm", "firmware")

_FIT_CODE = '''
def merge_intervals(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join overlapping intervals; the result is sorted."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


class RateLimiter {
  constructor(private readonly maxRequests: number, private readonly windowMs: number) {}
  private hits = new Map<string, number[]>();

  allow(key: string, now = Date.now()): boolean {
    const recent = (this.hits.get(key) ?? []).filter((t) => now - t < this.windowMs);
    if (recent.length >= this.maxRequests) return false;
    this.hits.set(key, [...recent, now]);
    return true;
  }
}

static int parse_header(const uint8_t *buf, size_t len, struct header *out) {
    if (len < HEADER_SIZE || memcmp(buf, MAGIC, 4) != 0) {
        return -EINVAL;
    }
    out->version = buf[4] << 8 | buf[5];
    out->flags = get_unaligned_le32(buf + 6);
    return 0;
}
'''

_FRESH_CODE = """
impl<T: Ord + Clone> SkipList<T> {
    pub fn insert(&mut self, value: T) -> bool {
        let mut update: Vec<Option<NodeRef<T>>> = vec![None; MAX_LEVEL];
        let level = self.rng.gen_range(0..MAX_LEVEL);
        match self.find_predecessors(&value, &mut update) {
            Some(node) if node.borrow().value == value => false,
            _ => { self.splice(value, level, update); true }
        }
    }
}

SELECT c.name, COUNT(o.id) AS order_count, SUM(o.total_cents) / 100.0 AS revenue
FROM customers AS c LEFT JOIN orders AS o ON o.customer_id = c.id AND o.created_at >= NOW() - INTERVAL '30 days'
GROUP BY c.name HAVING COUNT(o.id) > 3 ORDER BY revenue DESC;

@dataclass(frozen=True)
class Matrix:
    rows: tuple[tuple[float, ...], ...]

    def __matmul__(self, other: "Matrix") -> "Matrix":
        columns = list(zip(*other.rows))
        return Matrix(tuple(tuple(sum(a * b for a, b in zip(r, c)) for c in columns) for r in self.rows))

func (s *Server) handleUpload(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseMultipartForm(32 << 20); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer r.MultipartForm.RemoveAll()
}
"""


def fit_samples() -> dict[str, str]:
    """What the estimate's weights were fitted on, by kind."""
    return _samples(random.Random(1), _FIT_SENTENCES, _FIT_CODE, _FIT_WORDS, _FIT_EMOJI)


def fresh_samples() -> dict[str, str]:
    """Other texts of the same kinds, to judge the estimate by."""
    return _samples(random.Random(2), _FRESH_SENTENCES, _FRESH_CODE, _FRESH_WORDS, _FRESH_EMOJI)


def _samples(
    rng: random.Random, sentences: Mapping[str, Sequence[str]], code: str, words: Sequence[str], emoji: str
) -> dict[str, str]:
    natural = {kind: " ".join(lines) for kind, lines in sentences.items()}
    return {
        **natural,
        "code": code,
        "json rows": "\n".join(json.dumps(_row(rng, words)) for _ in range(60)),
        "hex": rng.randbytes(2_000).hex(),
        "base64": base64.b64encode(rng.randbytes(3_000)).decode(),
        "emoji": emoji * 3,
    }


def _row(rng: random.Random, words: Sequence[str]) -> dict[str, object]:
    values: tuple[object, ...] = (rng.randrange(10**6), round(rng.random() * 1e3, 2), rng.choice(words), None, True)
    return {"id": rng.randrange(10**8), **{word: rng.choice(values) for word in rng.sample(words, 5)}}
