//! [`Address`]: what two endpoints tell each other out of band before they connect.

/// How a peer reaches an [`Endpoint`](super::Endpoint). Send it over any channel, e.g. TCP, as
/// [`to_bytes`](Self::to_bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub(super) qp_number: u32,
    pub(super) psn: u32,
    pub(super) lid: u16,
    pub(super) mtu: u8,
    pub(super) rd_atomic: u8,
    pub(super) gid: [u8; 16],
}

/// Bytes that are not an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an endpoint's address: is the other side a pindown of another version?")]
pub struct AddressError;

impl Address {
    /// Length of [`to_bytes`](Self::to_bytes).
    pub const LEN_BYTES: usize = 32;
    const MAGIC: u32 = 0x7069_6e31; // "pin1"

    /// In network byte order.
    pub fn to_bytes(&self) -> [u8; Self::LEN_BYTES] {
        let mut out = [0; Self::LEN_BYTES];
        out[0..4].copy_from_slice(&Self::MAGIC.to_be_bytes());
        out[4..8].copy_from_slice(&self.qp_number.to_be_bytes());
        out[8..12].copy_from_slice(&self.psn.to_be_bytes());
        out[12..14].copy_from_slice(&self.lid.to_be_bytes());
        (out[14], out[15]) = (self.mtu, self.rd_atomic);
        out[16..32].copy_from_slice(&self.gid);
        out
    }

    /// The reverse of [`to_bytes`](Self::to_bytes).
    pub fn from_bytes(bytes: &[u8; Self::LEN_BYTES]) -> Result<Self, AddressError> {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[16..32]);
        let (mtu, rd_atomic) = (bytes[14], bytes[15]);
        if word(0) != Self::MAGIC || !(1..=5).contains(&mtu) {
            return Err(AddressError);
        }
        let lid = u16::from_be_bytes([bytes[12], bytes[13]]);
        Ok(Self { qp_number: word(4), psn: word(8), lid, mtu, rd_atomic, gid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_the_wire_and_garbage_does_not() {
        let gid = std::array::from_fn(|i| i as u8);
        let a = Address { qp_number: 0x123456, psn: 77, lid: 3, mtu: 5, rd_atomic: 16, gid };
        assert_eq!(Address::from_bytes(&a.to_bytes()), Ok(a));
        let mut bad = a.to_bytes();
        bad[0] ^= 1;
        assert_eq!(Address::from_bytes(&bad), Err(AddressError));
        let mut bad = a.to_bytes();
        bad[14] = 9;
        assert_eq!(Address::from_bytes(&bad), Err(AddressError));
    }
}
