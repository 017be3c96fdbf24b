# What "rails db:migrate" does.
require 'logger'
require 'active_record'

ActiveRecord::Base.establish_connection(adapter: 'postgresql', database: ENV.fetch('PGDATABASE'))
ActiveRecord::Migration.verbose = false
directory = File.join(__dir__, 'activerecord')
begin
  if ActiveRecord::VERSION::MAJOR < 7
    ActiveRecord::MigrationContext.new(directory, ActiveRecord::SchemaMigration).migrate
  else
    ActiveRecord::MigrationContext.new(directory).migrate
  end
rescue ActiveRecord::ConcurrentMigrationError => e
  abort "ConcurrentMigrationError: #{e.message}"
end
