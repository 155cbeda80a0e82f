//! What the helper and its clients say to each other: three messages, each whole.
//!
//! The helper sends a [`Challenge`]; the client answers with a [`Hello`] that repeats its number, to
//! which the kernel adds who sent it; the helper sends a [`Welcome`] with the maps' and the links'
//! descriptors, or a refusal. The connection then stays open for as long as the client is watched.

/// The first bytes of each message: what it is, and the version of all this.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"pindown\x01");
/// Bytes of the longest message.
pub(crate) const LONGEST: usize = 1024;

/// To the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    pub(crate) number: u64,
}

/// To the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) number: u64,
    /// The process to watch: 0, or the sender's own pid. Anything else is refused.
    pub(crate) pid: u32,
    pub(crate) ring_bytes: u32,
}

/// To the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    /// 0, or the errno of the refusal.
    pub(crate) refusal: u32,
    pub(crate) slot: u32,
    pub(crate) ring_bytes: u32,
    /// 0: fexit, 1: tracepoint.
    pub(crate) variant: u32,
    /// A line a program, "number name"; or why it was refused.
    pub(crate) text: String,
}

/// Reads integers off the front of a message.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn magic(&mut self) -> Option<()> {
        (self.u64()? == MAGIC).then_some(())
    }
}

fn begin() -> Vec<u8> {
    MAGIC.to_le_bytes().to_vec()
}

impl Challenge {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = begin();
        out.extend(self.number.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader(bytes);
        r.magic()?;
        let challenge = Self { number: r.u64()? };
        r.0.is_empty().then_some(challenge) // a refusal is longer
    }
}

impl Hello {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = begin();
        out.extend(self.number.to_le_bytes());
        out.extend(self.pid.to_le_bytes());
        out.extend(self.ring_bytes.to_le_bytes());
        out
    }

    /// `None`: not a hello of this version, to the byte.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader(bytes);
        r.magic()?;
        let hello = Self { number: r.u64()?, pid: r.u32()?, ring_bytes: r.u32()? };
        r.0.is_empty().then_some(hello)
    }
}

impl Welcome {
    pub(crate) fn refuse(errno: i32, why: &str) -> Self {
        Self { refusal: errno as u32, slot: 0, ring_bytes: 0, variant: 0, text: why.to_owned() }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = begin();
        for word in [self.refusal, self.slot, self.ring_bytes, self.variant] {
            out.extend(word.to_le_bytes());
        }
        let room = LONGEST - out.len();
        out.extend(self.text.bytes().take(room));
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader(bytes);
        r.magic()?;
        let (refusal, slot, ring_bytes, variant) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        Some(Self { refusal, slot, ring_bytes, variant, text: String::from_utf8_lossy(r.0).into_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_journey_and_garbage_does_not() {
        let hello = Hello { number: 7, pid: 0, ring_bytes: 4096 };
        assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        let welcome = Welcome { refusal: 0, slot: 3, ring_bytes: 4096, variant: 1, text: "0 x\n".into() };
        assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
        assert_eq!(Challenge::decode(&Challenge { number: 9 }.encode()), Some(Challenge { number: 9 }));
        for len in 0..hello.encode().len() {
            assert_eq!(Hello::decode(&hello.encode()[..len]), None);
        }
        let mut long = hello.encode();
        long.push(0);
        assert_eq!(Hello::decode(&long), None);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..80)) {
            let _ = (Hello::decode(&bytes), Welcome::decode(&bytes), Challenge::decode(&bytes));
        }
    }
}
