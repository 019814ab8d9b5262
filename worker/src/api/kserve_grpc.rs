//! KServe v2 over gRPC, with Triton's extensions: `inference.GRPCInferenceService`.
//!
//! A message is at most as large as an HTTP body, also once inflated. A call whose deadline passes, or whose client
//! leaves, is dropped where it waits, and takes its place in the model's line with it. Answers of a stream come in the
//! order of its requests, of which several are worked on at a time; a request that fails is an `error_message` in its
//! place, as in Triton, and the stream goes on; one that can't be read ends it. What a load can't do is the client's
//! mistake (3), where Triton says that it broke (13).

mod answer;
mod deadline;
mod request;
mod told;
mod unread;

/// The messages and the service, as `build.rs` makes them of `inference.proto`.
mod inference {
    #![expect(
        clippy::allow_attributes,
        clippy::allow_attributes_without_reason,
        clippy::enum_variant_names,
        clippy::too_many_lines,
        reason = "generated"
    )]
    tonic::include_proto!("inference");
}

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn;
use futures_util::{Stream, StreamExt};
use tonic::codec::CompressionEncoding;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::api::repository::UNLOAD_DEPENDENTS;
use crate::api::settings::trace_settings;
use crate::api::{BODY_LIMIT, EXTENSIONS, NO_SHARED_MEMORY, repository};
use crate::fault::Fault;
use crate::line::App;
use inference::grpc_inference_service_server::{GrpcInferenceService, GrpcInferenceServiceServer};
use inference::*;

/// The most requests of one stream that are worked on at a time: enough to fill a batch.
const IN_FLIGHT: usize = 32;

/// The service's calls.
pub fn router(app: Arc<App>) -> Router {
    let service = GrpcInferenceServiceServer::new(Front { app })
        .max_decoding_message_size(BODY_LIMIT)
        .max_encoding_message_size(usize::MAX)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate);
    let calls = Routes::new(service).into_axum_router();
    calls
        .layer(from_fn(unread::tell))
        .layer(from_fn(deadline::keep))
}

/// The service.
struct Front {
    app: Arc<App>,
}

/// A fault as gRPC says it.
fn refusal(fault: Fault) -> Status {
    let code = Code::from_i32(fault.kind.grpc());
    let mut status = Status::new(code, fault.message.as_str());
    if let Some(wait) = fault.retry_after {
        let seconds = (wait.0.ceil() as u64).into();
        status.metadata_mut().insert("retry-after", seconds);
    }
    status.set_source(Arc::new(fault));
    status
}

/// A version as gRPC names it: empty where none is asked for.
fn asked(version: &str) -> Option<&str> {
    Some(version).filter(|version| !version.is_empty())
}

async fn infer(app: &App, message: ModelInferRequest) -> Result<ModelInferResponse, Fault> {
    let _live = app.enter();
    let model = app.model(&message.model_name, asked(&message.model_version))?;
    let asked = request::read(message)?;
    let outputs = model.infer(asked.request).await?;
    Ok(answer::render(&model, asked.id, asked.parameters, &outputs))
}

/// One request of a stream. Its failure is told within the stream, with the request's id.
async fn infer_in_stream(app: Arc<App>, message: ModelInferRequest) -> ModelStreamInferResponse {
    let id = message.id.clone();
    let (error_message, answer) = match infer(&app, message).await {
        Ok(mut answer) => {
            let last = InferParameter::from(true);
            answer
                .parameters
                .insert("triton_final_response".into(), last);
            (String::new(), answer)
        }
        Err(fault) => {
            let answer = ModelInferResponse {
                id,
                ..ModelInferResponse::default()
            };
            (fault.message, answer)
        }
    };
    ModelStreamInferResponse {
        error_message,
        infer_response: Some(answer),
    }
}

/// What a call gives.
type Outcome<T> = Result<Response<T>, Status>;

fn given<T>(outcome: Result<T, Fault>) -> Outcome<T> {
    outcome.map(Response::new).map_err(refusal)
}

fn no_shared_memory<T>() -> Outcome<T> {
    Err(Status::unimplemented(NO_SHARED_MEMORY))
}

#[tonic::async_trait]
impl GrpcInferenceService for Front {
    async fn server_live(&self, _: Request<ServerLiveRequest>) -> Outcome<ServerLiveResponse> {
        given(Ok(ServerLiveResponse { live: true }))
    }

    async fn server_ready(&self, _: Request<ServerReadyRequest>) -> Outcome<ServerReadyResponse> {
        let ready = self.app.ready().is_ok();
        given(Ok(ServerReadyResponse { ready }))
    }

    async fn model_ready(
        &self,
        request: Request<ModelReadyRequest>,
    ) -> Outcome<ModelReadyResponse> {
        let ModelReadyRequest { name, version } = request.into_inner();
        let found = self
            .app
            .ready()
            .and_then(|()| self.app.model(&name, asked(&version)));
        given(Ok(ModelReadyResponse {
            ready: found.is_ok(),
        }))
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Outcome<ServerMetadataResponse> {
        given(Ok(ServerMetadataResponse {
            name: "forebay-worker".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            extensions: EXTENSIONS.map(str::to_owned).to_vec(),
        }))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Outcome<ModelMetadataResponse> {
        let ModelMetadataRequest { name, version } = request.into_inner();
        let model = self.app.model(&name, asked(&version)).map_err(refusal)?;
        let versions = self.app.registry.versions(&model.name);
        given(Ok(answer::metadata(&model, &versions)))
    }

    async fn model_config(
        &self,
        request: Request<ModelConfigRequest>,
    ) -> Outcome<ModelConfigResponse> {
        let ModelConfigRequest { name, version } = request.into_inner();
        let model = self.app.model(&name, asked(&version)).map_err(refusal)?;
        given(answer::config(&model))
    }

    async fn model_infer(
        &self,
        request: Request<ModelInferRequest>,
    ) -> Outcome<ModelInferResponse> {
        given(infer(&self.app, request.into_inner()).await)
    }

    type ModelStreamInferStream =
        Pin<Box<dyn Stream<Item = Result<ModelStreamInferResponse, Status>> + Send>>;

    async fn model_stream_infer(
        &self,
        request: Request<Streaming<ModelInferRequest>>,
    ) -> Outcome<Self::ModelStreamInferStream> {
        let app = Arc::clone(&self.app);
        let begin = move |message: Result<ModelInferRequest, Status>| {
            let app = Arc::clone(&app);
            let message = message.map_err(|status| unread::mistake(&status).unwrap_or(status));
            async move { Ok(infer_in_stream(app, message?).await) }
        };
        let answers = request.into_inner().map(begin).buffered(IN_FLIGHT);
        given(Ok(Box::pin(answers)))
    }

    async fn model_statistics(
        &self,
        request: Request<ModelStatisticsRequest>,
    ) -> Outcome<ModelStatisticsResponse> {
        let ModelStatisticsRequest { name, version } = request.into_inner();
        let models = self.app.versions(asked(&name), asked(&version));
        given(models.map(|models| told::statistics(&models)))
    }

    async fn repository_index(
        &self,
        request: Request<RepositoryIndexRequest>,
    ) -> Outcome<RepositoryIndexResponse> {
        let ready = request.into_inner().ready;
        let standings = repository::standings(Arc::clone(&self.app), ready).await;
        given(standings.map(|standings| answer::index(&standings)))
    }

    async fn repository_model_load(
        &self,
        request: Request<RepositoryModelLoadRequest>,
    ) -> Outcome<RepositoryModelLoadResponse> {
        let asked = request.into_inner();
        let parameter = asked.parameters.keys().next();
        let loaded = repository::load_as_described(&self.app, &asked.model_name, parameter).await;
        given(loaded.map(|()| RepositoryModelLoadResponse {}))
    }

    async fn repository_model_unload(
        &self,
        request: Request<RepositoryModelUnloadRequest>,
    ) -> Outcome<RepositoryModelUnloadResponse> {
        let asked = request.into_inner();
        let members = told::flag(asked.parameters.get(UNLOAD_DEPENDENTS));
        let unloaded = repository::unload_by_name(&self.app, &asked.model_name, members).await;
        given(unloaded.map(|()| RepositoryModelUnloadResponse {}))
    }

    async fn system_shared_memory_status(
        &self,
        _: Request<SystemSharedMemoryStatusRequest>,
    ) -> Outcome<SystemSharedMemoryStatusResponse> {
        no_shared_memory()
    }

    async fn system_shared_memory_register(
        &self,
        _: Request<SystemSharedMemoryRegisterRequest>,
    ) -> Outcome<SystemSharedMemoryRegisterResponse> {
        no_shared_memory()
    }

    async fn system_shared_memory_unregister(
        &self,
        _: Request<SystemSharedMemoryUnregisterRequest>,
    ) -> Outcome<SystemSharedMemoryUnregisterResponse> {
        no_shared_memory()
    }

    async fn cuda_shared_memory_status(
        &self,
        _: Request<CudaSharedMemoryStatusRequest>,
    ) -> Outcome<CudaSharedMemoryStatusResponse> {
        no_shared_memory()
    }

    async fn cuda_shared_memory_register(
        &self,
        _: Request<CudaSharedMemoryRegisterRequest>,
    ) -> Outcome<CudaSharedMemoryRegisterResponse> {
        no_shared_memory()
    }

    async fn cuda_shared_memory_unregister(
        &self,
        _: Request<CudaSharedMemoryUnregisterRequest>,
    ) -> Outcome<CudaSharedMemoryUnregisterResponse> {
        no_shared_memory()
    }

    async fn trace_setting(
        &self,
        request: Request<TraceSettingRequest>,
    ) -> Outcome<TraceSettingResponse> {
        let TraceSettingRequest {
            settings,
            model_name,
        } = request.into_inner();
        if let Some(name) = asked(&model_name) {
            self.app.model(name, None).map_err(refusal)?;
        }
        let now = trace_settings(&told::wanted_of_trace(settings));
        given(now.map(|now| told::trace(&now)))
    }

    async fn log_settings(
        &self,
        request: Request<LogSettingsRequest>,
    ) -> Outcome<LogSettingsResponse> {
        let wanted = told::wanted_of_log(request.into_inner().settings);
        let changed = self.app.log.change(&wanted).map_err(Fault::bad);
        given(changed.map(|()| told::log(&self.app.log.settings())))
    }
}
