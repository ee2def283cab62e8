//! Samples as Parquet: every column optional and typed, compressed with Snappy.

use std::io::Write;
use std::sync::Arc;

use lab::journal::Run;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};

use super::cell::{Cell, Kind, Row};
use super::column::{self, Column};
use super::{ExportError, Wanted, rows};

/// Rows that are held in columns at a time.
const GROUP: usize = 8192;

pub(super) fn write(
    runs: &[Run],
    wanted: Wanted<'_>,
    out: &mut (dyn Write + Send),
) -> Result<(), ExportError> {
    let columns = column::of(rows(runs, wanted));
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let schema = schema(&columns).map_err(fault)?;
    let mut writer = SerializedFileWriter::new(out, schema, Arc::new(properties)).map_err(fault)?;
    let mut rows = rows(runs, wanted).peekable();
    while rows.peek().is_some() {
        let group: Vec<Row<'_>> = rows.by_ref().take(GROUP).collect();
        let mut open = writer.next_row_group().map_err(fault)?;
        for column in &columns {
            if let Some(mut written) = open.next_column().map_err(fault)? {
                fill(&mut written, column, &group).map_err(fault)?;
                written.close().map_err(fault)?;
            }
        }
        open.close().map_err(fault)?;
    }
    writer.close().map_err(fault)?;
    Ok(())
}

fn schema(columns: &[Column]) -> Result<TypePtr, ParquetError> {
    let field = |column: &Column| {
        let (physical, logical) = match column.kind {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Real => (Physical::DOUBLE, None),
            Kind::Whole => (Physical::INT64, None),
            Kind::Truth => (Physical::BOOLEAN, None),
        };
        Type::primitive_type_builder(&column.name, physical)
            .with_logical_type(logical)
            .with_repetition(Repetition::OPTIONAL)
            .build()
            .map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<_, _>>()?;
    Type::group_type_builder("samples").with_fields(fields).build().map(Arc::new)
}

fn fill(
    writer: &mut SerializedColumnWriter<'_>,
    column: &Column,
    rows: &[Row<'_>],
) -> Result<(), ParquetError> {
    let cells: Vec<Option<Cell<'_>>> = rows.iter().map(|row| column.cell(row)).collect();
    match column.kind {
        Kind::Text => batch::<ByteArrayType>(writer, &cells, |cell| match cell {
            Cell::Text(text) => Some(ByteArray::from(text.as_ref())),
            _ => None,
        }),
        Kind::Real => batch::<DoubleType>(writer, &cells, |cell| match cell {
            Cell::Real(number) => Some(*number),
            _ => None,
        }),
        Kind::Whole => batch::<Int64Type>(writer, &cells, |cell| match cell {
            Cell::Whole(number) => i64::try_from(*number).ok(),
            _ => None,
        }),
        Kind::Truth => batch::<BoolType>(writer, &cells, |cell| match cell {
            Cell::Truth(truth) => Some(*truth),
            _ => None,
        }),
    }
}

/// Writes the values that there are, and for each row whether there is one.
fn batch<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    cells: &[Option<Cell<'_>>],
    value: impl Fn(&Cell<'_>) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let values: Vec<Option<T::T>> =
        cells.iter().map(|cell| cell.as_ref().and_then(&value)).collect();
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    writer.typed::<T>().write_batch(&values, Some(&levels), None)?;
    Ok(())
}

fn fault(error: ParquetError) -> ExportError {
    match error {
        ParquetError::External(error) => match error.downcast::<std::io::Error>() {
            Ok(error) => ExportError::Write(*error),
            Err(other) => ExportError::Encode(other.to_string()),
        },
        other => ExportError::Encode(other.to_string()),
    }
}
