//! Parquet files: typed optional columns, compressed with Snappy.

use std::io::Write;
use std::sync::Arc;

use lab::journal::Run;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};

use super::column::{self, Cell, Column, ColumnType, Row};
use super::{ExportError, SampleFilter, rows};

/// Number of rows in memory at a time.
const GROUP: usize = 8192;

pub(super) fn write(
    runs: &[Run],
    filter: SampleFilter<'_>,
    out: &mut (dyn Write + Send),
) -> Result<(), ExportError> {
    let columns = column::columns(rows(runs, filter));
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let schema = schema(&columns).map_err(error)?;
    let mut writer = SerializedFileWriter::new(out, schema, Arc::new(properties)).map_err(error)?;
    let mut rows = rows(runs, filter).peekable();
    while rows.peek().is_some() {
        let group: Vec<Row<'_>> = rows.by_ref().take(GROUP).collect();
        let mut open = writer.next_row_group().map_err(error)?;
        for column in &columns {
            if let Some(mut written) = open.next_column().map_err(error)? {
                fill(&mut written, column, &group).map_err(error)?;
                written.close().map_err(error)?;
            }
        }
        open.close().map_err(error)?;
    }
    writer.close().map_err(error)?;
    Ok(())
}

fn schema(columns: &[Column]) -> Result<TypePtr, ParquetError> {
    let field = |column: &Column| {
        let (physical, logical) = match column.column_type {
            ColumnType::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            ColumnType::Float => (Physical::DOUBLE, None),
            ColumnType::Integer => (Physical::INT64, None),
            ColumnType::Boolean => (Physical::BOOLEAN, None),
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
    match column.column_type {
        ColumnType::Text => batch::<ByteArrayType>(writer, &cells, |cell| match cell {
            Cell::Text(text) => Some(ByteArray::from(text.as_ref())),
            _ => None,
        }),
        ColumnType::Float => batch::<DoubleType>(writer, &cells, |cell| match cell {
            Cell::Float(number) => Some(*number),
            _ => None,
        }),
        ColumnType::Integer => batch::<Int64Type>(writer, &cells, |cell| match cell {
            Cell::Integer(number) => i64::try_from(*number).ok(),
            _ => None,
        }),
        ColumnType::Boolean => batch::<BoolType>(writer, &cells, |cell| match cell {
            Cell::Boolean(value) => Some(*value),
            _ => None,
        }),
    }
}

/// Writes the present values, and for each row whether it has one.
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

fn error(error: ParquetError) -> ExportError {
    match error {
        ParquetError::External(error) => match error.downcast::<std::io::Error>() {
            Ok(error) => ExportError::Write(*error),
            Err(other) => ExportError::Encode(other.to_string()),
        },
        other => ExportError::Encode(other.to_string()),
    }
}
