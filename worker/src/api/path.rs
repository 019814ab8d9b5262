//! What a path names, or a refusal in the shape that its clients read. (axum's own is plain text, for example of a name
//! that is no UTF-8 once its escapes are undone.)

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::Response;
use serde::de::DeserializeOwned;

use crate::fault::Fault;

/// The parts of a path.
pub struct Path<T>(pub T);

impl<T, S> FromRequestParts<S> for Path<T>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let named = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        named.map(|named| Path(named.0)).map_err(|_| {
            let fault = Fault::bad("the path can't be read: its %-escapes make no UTF-8");
            super::refusal(parts.uri.path(), &fault)
        })
    }
}
