//! NVIDIA's libraries, opened by path.
//!
//! ONNX Runtime's provider for cards asks the system's loader for CUDA and cuDNN by name, and pip puts them where no
//! loader looks: `nvidia/*/lib` beside the package. The loader takes what the process has open already for what is
//! asked for, so each is opened from there first, those that others need before them. (ort has a list of its own, of
//! CUDA 13 only, and stops at the first that is missing; the provider itself tells better what it misses.) Nothing is
//! searched beyond the folder that the library came from: what an operator installed for the system is found by the
//! system.

use std::path::{Path, PathBuf};

/// In the order in which they need each other; TensorRT's last.
const STEMS: [&str; 17] = [
    "libcudart",
    "libnvJitLink",
    "libcublasLt",
    "libcublas",
    "libnvrtc",
    "libcurand",
    "libcufft",
    "libcudnn_graph",
    "libcudnn_ops",
    "libcudnn_heuristic",
    "libcudnn_cnn",
    "libcudnn_adv",
    "libcudnn_engines_precompiled",
    "libcudnn_engines_runtime_compiled",
    "libcudnn",
    "libnvinfer",
    "libnvonnxparser",
];

/// Opens what lies beside ONNX Runtime's library, and says how many there were.
pub fn preload(library: &Path) -> usize {
    let library = std::fs::canonicalize(library).unwrap_or_else(|_| library.to_owned());
    let files: Vec<PathBuf> = folders(&library)
        .iter()
        .flat_map(|one| files(one))
        .collect();
    STEMS.iter().filter(|stem| open(&files, stem)).count()
}

/// Where wheels put them: beside the library, and beside the package that it is in.
fn folders(library: &Path) -> Vec<PathBuf> {
    let home = library.parent();
    let site = home.and_then(|capi| capi.parent()?.parent());
    let nvidia = site.and_then(|site| std::fs::read_dir(site.join("nvidia")).ok());
    let packages = nvidia.into_iter().flatten();
    let mut packages: Vec<PathBuf> = packages
        .filter_map(|package| Some(package.ok()?.path().join("lib")))
        .collect();
    packages.sort();
    let mut folders: Vec<PathBuf> = home.map(Path::to_owned).into_iter().collect();
    folders.extend(packages);
    folders.extend(site.map(|site| site.join("tensorrt_libs")));
    folders
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.sort();
    files
}

/// Opens the first of these files that is called so and can be opened.
fn open(files: &[PathBuf], stem: &str) -> bool {
    let called = |path: &&PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let rest = name.and_then(|name| name.strip_prefix(stem));
        rest.is_some_and(|rest| rest.starts_with(".so"))
    };
    let mut found = files.iter().filter(called);
    found.any(|path| match ort::util::preload_dylib(path) {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!("{}: {error}", path.display());
            false
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pip_laid_out_is_found_and_a_file_that_is_no_library_is_passed_over() {
        let site = tempfile::tempdir().unwrap();
        let capi = site.path().join("onnxruntime/capi");
        let cuda = site.path().join("nvidia/cu13/lib");
        for folder in [&capi, &cuda] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let library = capi.join("libonnxruntime.so.1.31.1");
        std::fs::write(&library, "").unwrap();
        std::fs::write(cuda.join("libcudart.so.13"), "no library").unwrap();
        let there = folders(&library);
        assert!(there.contains(&capi) && there.contains(&cuda), "{there:?}");
        assert_eq!(files(&cuda), [cuda.join("libcudart.so.13")]);
        assert_eq!(preload(&library), 0);
    }
}
