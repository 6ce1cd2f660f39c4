// SPDX-License-Identifier: GPL-2.0

//! Errors for which the `kernel` crate of Linux 7.2 has no constants.

use kernel::bindings;
use kernel::error::Error;

macro_rules! errors {
    ($($name:ident = $errno:ident;)*) => {
        $(
            #[doc = concat!("Returns the error `", stringify!($errno), "`.")]
            pub fn $name() -> Error {
                Error::from_errno(-(bindings::$errno as i32))
            }
        )*
    };
}

errors! {
    edquot = EDQUOT;
    enodata = ENODATA;
    eopnotsupp = EOPNOTSUPP;
}
